//! Calls of the producer's user that end later: flush, close and those of transactions.

use super::error::{ClientFailure, Next, Reason, Written};
use super::machine::Machine;
use super::message::{OpId, Output, RecordId};

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ends when these many records up to this one have their outcome.
    Flush {
        last: RecordId,
        left: usize,
    },
    Init,
    Offsets,
    Commit,
    Abort,
}

/// A call without a result.
#[derive(Debug)]
pub(super) struct Op {
    pub id: OpId,
    pub kind: Kind,
    /// When its user waits no longer; what it began goes on.
    pub until_ms: u64,
}

impl Machine {
    /// Waits until every record taken so far has its outcome; they go out at once.
    pub fn flush(&mut self, op: OpId) {
        if self.outstanding == 0 {
            self.done(op, Ok(()));
            return;
        }
        let last = RecordId(self.next_record - 1);
        let kind = Kind::Flush { last, left: self.outstanding };
        // Bounded by the delivery timeout of the records.
        self.ops.push(Op { id: op, kind, until_ms: u64::MAX });
        self.flushes += 1;
        self.touch_all();
    }

    /// As [`Machine::flush`], and no record is taken any more.
    pub fn close(&mut self, op: OpId) {
        self.closed = true;
        self.flush(op);
    }

    /// Gives everything up at once.
    pub fn shut(&mut self) {
        self.closed = true;
        self.die(ClientFailure::new(Reason::Closed, Written::No, Next::Close));
    }

    pub(super) fn op(&mut self, id: OpId, kind: Kind) {
        let until_ms = self.now_ms.saturating_add(self.settings.block_ms_max);
        self.ops.push(Op { id, kind, until_ms });
    }

    pub(super) fn done(&mut self, op: OpId, result: Result<(), ClientFailure>) {
        self.outputs.push(Output::Done { op, result });
    }

    /// Ends all calls of a kind; whether there was one.
    pub(super) fn finish(&mut self, kind: Kind, result: &Result<(), ClientFailure>) -> bool {
        let (ended, left): (Vec<_>, Vec<_>) = self.ops.drain(..).partition(|op| op.kind == kind);
        self.ops = left;
        for op in &ended {
            self.done(op.id, result.clone());
        }
        !ended.is_empty()
    }

    /// Tells flushes that these records have their outcome.
    pub(super) fn count_down(&mut self, records: &[RecordId]) {
        self.outstanding -= records.len();
        if self.flushes == 0 {
            return;
        }
        let mut ended = Vec::new();
        self.ops.retain_mut(|op| {
            let Kind::Flush { last, left } = &mut op.kind else { return true };
            *left -= records.iter().filter(|id| **id <= *last).count();
            if *left == 0 {
                ended.push(op.id);
            }
            *left > 0
        });
        self.flushes -= ended.len();
        for op in ended {
            self.done(op, Ok(()));
        }
    }

    pub(super) fn time_out_ops(&mut self) {
        let now_ms = self.now_ms;
        let (late, left): (Vec<_>, Vec<_>) = self.ops.drain(..).partition(|op| op.until_ms <= now_ms);
        self.ops = left;
        for op in late {
            self.done(op.id, Err(ClientFailure::new(Reason::BlockTimeout, Written::Unknown, Next::GoOn)));
        }
    }

    pub(super) fn finish_all(&mut self, failure: &ClientFailure) {
        self.flushes = 0;
        for op in std::mem::take(&mut self.ops) {
            self.done(op.id, Err(failure.clone()));
        }
    }
}
