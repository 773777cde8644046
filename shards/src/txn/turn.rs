//! What one step of a slot may use: the time, the settings, where things are, and the ways out of it.

use std::collections::BTreeMap;

use super::decision::ProducerIds;
use super::markers::{Marker, MarkerBatch, MarkerFile, OffsetsHook, Places};
use super::{Effect, Effects, FenceId, Now, Reply, TxnSettings};
use crate::code::ErrorCode;
use crate::ids::ShardId;
use crate::partition::WaiterId;

pub(super) struct Turn<'a> {
    pub now: Now,
    pub settings: &'a TxnSettings,
    pub places: &'a dyn Places,
    pub coordinator_epoch: i32,
    pub producer_ids: &'a mut ProducerIds,
    pub fences: &'a mut FenceId,
    pub outbox: Outbox,
    pub effects: &'a mut Effects,
}

/// What leaves at the end of the turn, joined by where it goes.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub markers: BTreeMap<ShardId, Vec<Marker>>,
    pub files: Vec<MarkerFile>,
    pub hooks: Vec<OffsetsHook>,
}

impl Turn<'_> {
    pub fn reply(&mut self, waiter: WaiterId, reply: Result<Reply, ErrorCode>) {
        self.effects.push(Effect::Reply(waiter, reply));
    }

    pub fn next_fence(&mut self) -> FenceId {
        self.fences.0 += 1;
        *self.fences
    }

    pub fn finish(self) {
        let batches = self.outbox.markers.into_iter().map(|(to, markers)| MarkerBatch { to, markers });
        self.effects.extend(batches.map(Effect::SendMarkers));
        self.effects.extend(self.outbox.files.into_iter().map(Effect::QueueMarkers));
        self.effects.extend(self.outbox.hooks.into_iter().map(Effect::OffsetsHook));
        if self.producer_ids.take_want() {
            self.effects.push(Effect::WantProducerIds);
        }
    }
}
