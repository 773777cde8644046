//! One slot of transactional ids: the steps of each id that are not durable yet, the requests that wait for them, and
//! the markers on their way.
//!
//! Owned by [`super::Transactions`]. An id is *busy* while a step of it is pending or its transaction is completing.
//! Complete* does not make it busy, and adds do not keep other adds away (see the parent's comment).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::ask::{AddBy, Ask, Reply, Request};
use super::decision::Decision;
use super::entry::{Change, Entry};
use super::markers::{Dispatch, Fence, MarkerAnswer, TxnKey};
use super::state::{Head, Joining, Members, State};
use super::turn::Turn;
use super::{Effect, FenceId, TxnCounts, add, adopt, end, init};
use crate::code::ErrorCode;
use crate::ids::{ProducerId, SlotId, TimestampMs};
use crate::limits::{TXN_IDS_MAX, TXN_PARKED_MAX};
use crate::partition::WaiterId;
use crate::slot::{Journal, Position};

/// A transition that is decided and not yet what others see.
#[derive(Debug)]
struct Step {
    at: Position,
    change: Change,
    /// A fence that must be up as well.
    fence: Option<FenceId>,
    /// Whether a write for an add on top of it may start at once.
    early: bool,
    answers: Vec<(WaiterId, Result<Reply, ErrorCode>)>,
}

/// A request that waits for the id to come to rest.
#[derive(Debug)]
struct Parked {
    ask: Ask,
    waiter: WaiterId,
}

/// One transactional id.
#[derive(Debug)]
pub(super) struct Id {
    name: Arc<str>,
    /// As others see it: durable.
    pub(super) stored: Option<Head>,
    /// As decided: `stored` with all steps.
    pub(super) latest: Option<Head>,
    /// Of `latest`.
    pub(super) members: Members,
    steps: VecDeque<Step>,
    pub(super) dispatch: Option<Dispatch>,
    parked: Vec<Parked>,
}

impl Id {
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            stored: None,
            latest: None,
            members: Members::default(),
            steps: VecDeque::new(),
            dispatch: None,
            parked: Vec::new(),
        }
    }

    /// Whether a request must wait for a step or for markers.
    fn is_busy(&self, is_add: bool) -> bool {
        let waits = |step: &Step| match step.change {
            Change::Complete { .. } => false,
            Change::Add { .. } => !is_add,
            _ => true,
        };
        self.latest.as_ref().is_some_and(|head| head.state.completing().is_some()) || self.steps.iter().any(waits)
    }

    fn is_nothing(&self) -> bool {
        self.stored.is_none() && self.latest.is_none() && self.steps.is_empty() && self.parked.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    id: SlotId,
    ids: HashMap<Arc<str>, Id, FixedState>,
    pub(super) journal: Journal,
    /// Ids with a step at a position, in that order.
    in_flight: VecDeque<(Position, Arc<str>)>,
    /// Which id waits for which fence.
    fences: BTreeMap<FenceId, Arc<str>>,
    /// Ids with an open transaction.
    pub(super) open: BTreeSet<Arc<str>>,
    /// Ids whose markers are not all written.
    completing: BTreeSet<Arc<str>>,
    /// Ids with parked requests, and how many these are.
    waiting: BTreeSet<Arc<str>>,
    parked: usize,
    /// Up to where somebody waits for the journal; what follows can go with a later write.
    wanted: Position,
    /// When to look for what is over, on the clock that never jumps.
    pub(super) abort_due_ms: u64,
    pub(super) remove_due_ms: u64,
    /// Transactions aborted for their age, and for an InitProducerId.
    pub(super) timed_out: u64,
    taken_over: u64,
}

impl Slot {
    pub(super) fn restored(id: SlotId, journal: Journal, entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut slot = Self {
            id,
            ids: HashMap::default(),
            wanted: journal.end(),
            journal,
            in_flight: VecDeque::new(),
            fences: BTreeMap::new(),
            open: BTreeSet::new(),
            completing: BTreeSet::new(),
            waiting: BTreeSet::new(),
            parked: 0,
            abort_due_ms: 0,
            remove_due_ms: 0,
            timed_out: 0,
            taken_over: 0,
        };
        for Entry { id: name, change } in entries {
            let id = slot.ids.entry(name.clone()).or_insert_with(|| Id::new(name));
            id.latest = change.applied(id.latest.as_ref());
            change.apply_members(&mut id.members, Position(0));
        }
        slot.ids.retain(|_, id| id.latest.is_some());
        for id in slot.ids.values_mut() {
            id.stored.clone_from(&id.latest);
        }
        slot
    }

    /// Ids whose transaction is open or completing, or whose last step is not durable; some of them twice.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &Id> {
        let stepping = self.in_flight.iter().map(|(_, name)| name);
        self.open.iter().chain(&self.completing).chain(stepping).filter_map(|name| self.ids.get(name))
    }

    /// What a start owes: markers of everything that is decided (reconcile).
    pub(super) fn loaded(&mut self, turn: &mut Turn<'_>) {
        let mut decided = Vec::new();
        for (name, id) in &mut self.ids {
            let head = id.latest.as_ref().expect("only ids that are there are kept");
            if head.state == State::Ongoing {
                self.open.insert(name.clone());
            }
            if head.state.completing().is_some() {
                id.dispatch = Some(Dispatch::new(name, head, &id.members, turn.coordinator_epoch));
                decided.push(name.clone());
            }
        }
        decided.sort_unstable();
        self.completing.extend(decided.iter().cloned());
        decided.iter().for_each(|name| self.pump(name, turn));
    }

    pub(super) fn ask(&mut self, name: &str, ask: Ask, waiter: WaiterId, turn: &mut Turn<'_>) {
        match &ask.request {
            Request::Describe => {
                let described = self.ids.get(name).and_then(|id| id.describe(self.journal.durable()));
                let described = described.map(Reply::Described).ok_or(ErrorCode::TransactionalIdNotFound);
                turn.reply(waiter, described);
            }
            Request::Verify(verify) => {
                let nothing = Members::default();
                let id = self.ids.get(name);
                let (head, members) = id.map_or((None, &nothing), |id| (id.stored.as_ref(), &id.members));
                turn.reply(waiter, add::verify(head, members, self.journal.durable(), verify));
            }
            Request::Init(_) if !self.ids.contains_key(name) && self.ids.len() >= TXN_IDS_MAX => {
                turn.reply(waiter, Err(ErrorCode::CoordinatorNotAvailable));
            }
            _ => {
                let name: Arc<str> = self.ids.get_key_value(name).map_or_else(|| name.into(), |(name, _)| name.clone());
                self.ids.entry(name.clone()).or_insert_with(|| Id::new(name.clone()));
                self.run(&name, Parked { ask, waiter }, turn);
                self.tidy(&name);
            }
        }
    }

    /// Decides about a request, or parks it.
    fn run(&mut self, name: &Arc<str>, parked: Parked, turn: &mut Turn<'_>) {
        let id = self.ids.get_mut(name).expect("made before");
        let now = turn.now.wall;
        let (head, waiter) = (id.latest.as_ref(), parked.waiter);
        let is_add = matches!(parked.ask.request, Request::Add(_) | Request::Adopt(_));
        if id.is_busy(is_add) && !answers_at_once(head, &parked.ask.request) {
            return self.park(name, parked, turn);
        }
        let mut early = false;
        let decision = match &parked.ask.request {
            Request::Init(request) => init::decide(head, request, turn.settings, turn.producer_ids, now),
            Request::Add(request) => {
                early = request.by == (AddBy::Broker { early: true }) && id.steps.iter().all(|step| step.early);
                add::decide(head, &id.members, request, self.open.len(), turn.settings, now)
            }
            Request::End(request) => end::decide(head, request, turn.settings.version, turn.producer_ids, now),
            Request::Adopt(request) => adopt::decide(head, &id.members, request, now),
            Request::Verify(_) | Request::Describe => unreachable!("they are answered before"),
        };
        match decision {
            Decision::Answer(answer) => {
                self.grant(early && answer.is_ok(), waiter, turn);
                self.answer(name, waiter, answer, turn);
            }
            Decision::Record { change, reply, fence } => {
                self.grant(early, waiter, turn);
                self.record(name, change, fence, Some((waiter, Ok(reply))), turn);
            }
            Decision::First(change) => {
                self.taken_over += 1;
                self.record(name, change, None, None, turn);
                self.park(name, parked, turn);
            }
        }
    }

    fn grant(&mut self, early: bool, waiter: WaiterId, turn: &mut Turn<'_>) {
        if early {
            turn.effects.push(Effect::Granted(waiter));
        }
    }

    /// Answers when everything that the id did until now is durable.
    fn answer(&mut self, name: &str, waiter: WaiterId, answer: Result<Reply, ErrorCode>, turn: &mut Turn<'_>) {
        match self.ids.get_mut(name).and_then(|id| id.steps.back_mut()) {
            Some(step) => {
                step.answers.push((waiter, answer));
                self.wanted = self.wanted.max(step.at);
            }
            None => turn.reply(waiter, answer),
        }
    }

    fn park(&mut self, name: &Arc<str>, parked: Parked, turn: &mut Turn<'_>) {
        if self.parked >= TXN_PARKED_MAX || parked.ask.until_ms <= turn.now.mono_ms {
            return turn.reply(parked.waiter, Err(ErrorCode::ConcurrentTransactions));
        }
        self.parked += 1;
        self.waiting.insert(name.clone());
        self.ids.get_mut(name).expect("made before").parked.push(parked);
    }

    /// Makes a transition.
    pub(super) fn record(
        &mut self,
        name: &Arc<str>,
        change: Change,
        fence: Option<Fence>,
        answer: Option<(WaiterId, Result<Reply, ErrorCode>)>,
        turn: &mut Turn<'_>,
    ) {
        let id = self.ids.get_mut(name).expect("made before");
        let is_complete = matches!(change, Change::Complete { .. });
        let early = match change {
            Change::Add { .. } => true,
            // A marker of path B that is sent again does not hit what is open at its own epoch (A6.1).
            Change::Complete { .. } => id.latest.as_ref().is_some_and(|head| head.client_version == 2),
            _ => false,
        };
        let entry = Entry { id: name.clone(), change };
        let at = self.journal.append(&entry);
        let change = entry.change;
        id.latest = change.applied(id.latest.as_ref());
        change.apply_members(&mut id.members, at);
        if id.latest.as_ref().is_some_and(|head| head.state == State::Ongoing) {
            self.open.insert(name.clone());
        } else {
            self.open.remove(name);
        }
        let fence = fence.map(|fence| {
            let id = turn.next_fence();
            self.fences.insert(id, name.clone());
            turn.effects.push(Effect::Fence { slot: self.id, id, fence });
            id
        });
        id.steps.push_back(Step { at, change, fence, early, answers: answer.into_iter().collect() });
        self.in_flight.push_back((at, name.clone()));
        if !is_complete {
            self.wanted = at;
        }
    }

    /// Lets go what is durable, and asks for a writer where one is needed.
    pub(super) fn settle(&mut self, turn: &mut Turn<'_>) {
        if self.journal.is_offline() {
            return self.give_up(turn);
        }
        let durable = self.journal.durable();
        while self.in_flight.front().is_some_and(|(position, _)| *position <= durable) {
            let (_, name) = self.in_flight.pop_front().expect("just seen");
            self.settle_id(&name, turn);
        }
        if self.wanted > durable && self.journal.take_writer() {
            turn.effects.push(Effect::StartWriter(self.id));
        }
    }

    /// The steps of one id whose time has come.
    fn settle_id(&mut self, name: &Arc<str>, turn: &mut Turn<'_>) {
        let durable = self.journal.durable();
        let Some(id) = self.ids.get_mut(name) else { return };
        let mut any = false;
        while id.steps.front().is_some_and(|step| step.at <= durable && step.fence.is_none()) {
            let step = id.steps.pop_front().expect("just seen");
            any = true;
            id.stored = step.change.applied(id.stored.as_ref());
            step.answers.into_iter().for_each(|(waiter, answer)| turn.reply(waiter, answer));
            if let (Change::Prepare { .. }, Some(head)) = (&step.change, &id.stored) {
                id.dispatch = Some(Dispatch::new(name, head, &id.members, turn.coordinator_epoch));
                self.completing.insert(name.clone());
            }
        }
        if any {
            self.pump(name, turn);
            self.resume(name, turn);
            self.tidy(name);
        }
    }

    /// Sends the markers of an id that are due; with none left its transaction is complete.
    fn pump(&mut self, name: &Arc<str>, turn: &mut Turn<'_>) {
        let Some(id) = self.ids.get_mut(name) else { return };
        let Some(dispatch) = &mut id.dispatch else { return };
        dispatch.send(turn);
        if dispatch.is_done() {
            id.dispatch = None;
            self.completing.remove(name);
            self.record(name, Change::Complete { at: turn.now.wall }, None, None, turn);
        }
    }

    /// Asks again what waits for an id.
    fn resume(&mut self, name: &Arc<str>, turn: &mut Turn<'_>) {
        if self.waiting.remove(name) {
            let parked = std::mem::take(&mut self.ids.get_mut(name).expect("it has parked requests").parked);
            self.parked -= parked.len();
            parked.into_iter().for_each(|parked| self.run(name, parked, turn));
        }
    }

    /// An id of which nothing is known takes no room.
    fn tidy(&mut self, name: &str) {
        if self.ids.get(name).is_some_and(Id::is_nothing) {
            self.ids.remove(name);
        }
    }

    pub(super) fn marked(&mut self, txn: &TxnKey, answers: &[MarkerAnswer], turn: &mut Turn<'_>) {
        let now = turn.now;
        self.on_dispatch(txn, turn, |dispatch| answers.iter().for_each(|answer| dispatch.answered(answer, now)));
    }

    pub(super) fn hooked(&mut self, txn: &TxnKey, answers: &[(Arc<str>, ErrorCode)], turn: &mut Turn<'_>) {
        let now = turn.now;
        self.on_dispatch(txn, turn, |dispatch| {
            answers.iter().for_each(|(group, code)| dispatch.hooked(group, *code, now));
        });
    }

    /// Answers to markers of another transaction of the id are of no interest any more.
    fn on_dispatch(&mut self, txn: &TxnKey, turn: &mut Turn<'_>, step: impl FnOnce(&mut Dispatch)) {
        let dispatch = self.ids.get_mut(&txn.id).and_then(|id| id.dispatch.as_mut());
        if let Some(dispatch) = dispatch.filter(|dispatch| dispatch.sequence() == txn.sequence) {
            step(dispatch);
            self.pump(&txn.id, turn);
            self.resume(&txn.id, turn);
        }
    }

    pub(super) fn fenced(&mut self, fence: FenceId, turn: &mut Turn<'_>) {
        let Some(name) = self.fences.remove(&fence) else { return };
        let id = self.ids.get_mut(&name).expect("an id with a step stays");
        if let Some(step) = id.steps.iter_mut().find(|step| step.fence == Some(fence)) {
            step.fence = None;
        }
        self.settle_id(&name, turn);
    }

    pub(super) fn places_changed(&mut self, turn: &mut Turn<'_>) {
        let names: Vec<_> = self.completing.iter().cloned().collect();
        for name in names {
            let dispatch = self.ids.get_mut(&name).and_then(|id| id.dispatch.as_mut());
            dispatch.expect("a completing id has a dispatch").drop_gone(turn.places);
            self.pump(&name, turn);
            self.resume(&name, turn);
        }
    }

    pub(super) fn tick(&mut self, turn: &mut Turn<'_>) {
        self.expire_parked(turn);
        let names: Vec<_> = self.completing.iter().cloned().collect();
        for name in names {
            self.pump(&name, turn);
            self.resume(&name, turn);
        }
        self.reap(turn);
        // What nobody waits for has waited long enough for company.
        self.wanted = self.journal.end();
    }

    fn expire_parked(&mut self, turn: &mut Turn<'_>) {
        let names: Vec<_> = self.waiting.iter().cloned().collect();
        for name in names {
            let id = self.ids.get_mut(&name).expect("an id with parked requests stays");
            let before = id.parked.len();
            let now_ms = turn.now.mono_ms;
            for over in id.parked.extract_if(.., |parked| parked.ask.until_ms <= now_ms) {
                turn.effects.push(Effect::Reply(over.waiter, Err(ErrorCode::ConcurrentTransactions)));
            }
            self.parked -= before - id.parked.len();
            if id.parked.is_empty() {
                self.waiting.remove(&name);
                self.tidy(&name);
            }
        }
    }

    /// The journal is lost: whoever waits hears of it, and nothing goes on until the next start.
    fn give_up(&mut self, turn: &mut Turn<'_>) {
        for id in self.ids.values_mut() {
            let answers = id.steps.drain(..).flat_map(|step| step.answers).map(|(waiter, _)| waiter);
            let parked = id.parked.drain(..).map(|parked| parked.waiter);
            for waiter in answers.chain(parked) {
                turn.effects.push(Effect::Reply(waiter, Err(ErrorCode::CoordinatorNotAvailable)));
            }
            id.dispatch = None;
        }
        (self.in_flight, self.fences) = (VecDeque::new(), BTreeMap::new());
        (self.completing, self.waiting, self.parked) = (BTreeSet::new(), BTreeSet::new(), 0);
    }

    pub(super) fn owner_of(&self, producer_id: ProducerId) -> Option<Arc<str>> {
        let is_owner = |head: &Head| head.producer_id == producer_id || head.next_producer_id == producer_id;
        self.ids.values().find(|id| id.latest.as_ref().is_some_and(is_owner)).map(|id| id.name.clone())
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = (&Arc<str>, &Id)> {
        self.ids.iter()
    }

    /// An id without a pending transition.
    pub(super) fn at_rest(&self, name: &str) -> Option<&Head> {
        self.ids.get(name).filter(|id| !id.is_busy(false)).and_then(|id| id.latest.as_ref())
    }

    pub(super) fn snapshot(&self) -> Vec<Entry> {
        let mut ids: Vec<_> = self.ids.values().filter_map(|id| Some((id, id.latest.as_ref()?))).collect();
        ids.sort_unstable_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        let whole = |(id, head): (&Id, &Head)| {
            let partitions = id.members.partitions.keys().copied().collect();
            let members = Joining { partitions, groups: id.members.groups.keys().cloned().collect() };
            Entry { id: id.name.clone(), change: Change::Whole { head: head.clone(), members } }
        };
        ids.into_iter().map(whole).collect()
    }

    pub(super) fn oldest_open(&self) -> Option<TimestampMs> {
        self.open.iter().filter_map(|name| Some(self.ids.get(name)?.latest.as_ref()?.start)).min()
    }

    pub(super) fn counts(&self) -> TxnCounts {
        let (ids, completing) = (self.ids.len(), self.completing.len());
        let (open, parked, timed_out, taken_over) = (self.open.len(), self.parked, self.timed_out, self.taken_over);
        TxnCounts { ids, open, completing, parked, timed_out, taken_over }
    }
}

/// Whether a request need not wait for a busy id: path A looks at who asks first (B6), and what is open at a partition
/// of a transaction that is decided gets its marker.
fn answers_at_once(head: Option<&Head>, request: &Request) -> bool {
    match request {
        Request::End(request) if !request.bumps => end::check_a(head, request).is_err(),
        Request::Adopt(request) => {
            head.is_none_or(|head| head.state.completing().is_some() && !adopt::must_wait(head, request.producer))
        }
        _ => false,
    }
}
