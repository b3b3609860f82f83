//! The processes that train one run together.

use crate::TrainError;
use crate::gradients::{AllReduce, GradientSum, ReceivedEarly, Sent, SentEarly};
use crate::objective::Share;
use crate::optimizer::Shard;
use burn::tensor::Device;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use undertone_ops::{Communicator, NcclError};
use undertone_ranks::{RankError, Ranks, Timeouts};

/// The ranks that train a run together; by default a process is alone.
#[derive(Clone, Debug, Default)]
pub struct ProcessGroup {
    /// Nothing where there is no other.
    ranks: Option<Arc<Ranks>>,
    state: Arc<Mutex<State>>,
}

/// How ranks state, and what came of it so far.
#[derive(Debug, Default)]
struct State {
    timeouts: Timeouts,
    /// Whether one has failed: then nobody says or hears anything any more.
    ended: bool,
    /// Whether ranks can no longer hear each other.
    broken: bool,
    /// Those that were silent when they should have been heard.
    silent: Vec<usize>,
    /// Whether this process was stopped meanwhile, so that the others have named it.
    stopped: bool,
    /// Time spent on waiting for the sums of gradients.
    waited: Duration,
    /// The ranks' cards, once it is known whether they add up gradients by themselves.
    cards: Option<Option<Arc<Communicator>>>,
}

/// What a rank says of its card.
#[derive(Serialize, Deserialize)]
enum Card {
    /// It can be one of a group; the first rank's names the group.
    Ready(Vec<u8>),
    /// It is none of CUDA's.
    None,
    Failed(String),
}

/// What a rank says, whatever the others wait for: one that fails need not know what that is.
#[derive(Serialize, Deserialize)]
enum Message<T> {
    Value(T),
    Failed(String),
}

impl ProcessGroup {
    /// This process among the ranks.
    pub fn of(ranks: Arc<Ranks>) -> Self {
        Self { ranks: (ranks.count() > 1).then_some(ranks), state: Arc::default() }
    }

    /// Its ranks in so many groups, as even as can be: which of them this one is in, and those that are in it with it.
    pub fn split(&self, groups: usize) -> (usize, Self) {
        let Some(ranks) = &self.ranks else { return (0, Self::default()) };
        let group_of = |rank: usize| rank * groups / ranks.count();
        let own = group_of(ranks.rank());
        let members: Vec<usize> = (0..ranks.count()).filter(|rank| group_of(*rank) == own).collect();
        (own, Self::of(Arc::new(ranks.group(&members))))
    }

    /// Which one this is, from 0.
    pub fn rank(&self) -> usize {
        self.ranks.as_ref().map_or(0, |ranks| ranks.rank())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ranks.as_ref().map_or(1, |ranks| ranks.count())
    }

    /// Whether there is no other.
    pub fn is_alone(&self) -> bool {
        self.ranks.is_none()
    }

    /// Whether it is the one that writes.
    pub fn is_main_process(&self) -> bool {
        self.rank() == 0
    }

    /// Whether it is the one that tells a person what went wrong, once [`all_ok`](Self::all_ok) has told all of them: the first
    /// one that is still there.
    pub fn reports_errors(&self) -> bool {
        let state = self.state();
        !state.stopped && (0..self.rank()).all(|rank| state.silent.contains(&rank))
    }

    /// Whether the first rank may still be saving what was learned, and cannot say when it has: ranks that no longer hear each other
    /// must not leave before it, for a launcher ends all processes once one has failed.
    pub fn leaves_first_rank_behind(&self) -> bool {
        let state = self.state();
        state.broken && !self.is_main_process() && !state.silent.contains(&0)
    }

    /// What a rank is called in sentences: its number, and the host it is on.
    pub fn name(&self, rank: usize) -> String {
        self.ranks.as_ref().map_or_else(|| format!("rank {rank}"), |ranks| ranks.name(rank).to_string())
    }

    /// Of the batches of steps that have `window` of them, those that this rank computes.
    pub(crate) fn share(&self, window: usize) -> Share {
        Share { rank: self.rank(), count: self.count(), window }
    }

    /// Which part of the optimizer's state is this rank's, where it is shared out.
    pub(crate) fn shard(&self) -> Shard {
        Shard { rank: self.rank(), count: self.count() }
    }

    /// Begins steps, in which ranks keep pace: others may take so long from now on.
    pub(crate) fn set_timeout(&self, seconds: u64) {
        let seconds = Duration::from_secs(seconds);
        self.state().timeouts = Timeouts { answer: seconds, heartbeat: seconds };
    }

    /// Waits for others as long as they give signs of life: until each has trained something of its own.
    pub fn disable_timeout(&self) {
        self.state().timeouts.answer = Duration::MAX;
    }

    /// Ends them: ranks may be far apart, as where one writes a large model. A process that has died is still found out.
    pub(crate) fn reset_timeout(&self) {
        self.state().timeouts.answer = Timeouts::default().answer;
    }

    /// What every rank says, in the order of ranks.
    ///
    /// # Errors
    /// When a rank has failed, is gone or silent.
    pub fn all_gather<T: Serialize + DeserializeOwned>(&self, said: T) -> Result<Vec<T>, TrainError> {
        let Some(ranks) = &self.ranks else { return Ok(vec![said]) };
        let mut heard = Vec::with_capacity(ranks.count());
        for (rank, said) in self.exchange(ranks, &Message::Value(said))?.into_iter().enumerate() {
            match said {
                Message::Value(said) => heard.push(said),
                Message::Failed(message) => {
                    self.state().ended = true;
                    return Err(TrainError::Rank { rank: self.name(rank), message });
                }
            }
        }
        Ok(heard)
    }

    /// Says to all what became of this rank's part, and waits for theirs: an error of any is one of all, wherever they are.
    ///
    /// # Errors
    /// That of this rank, or that of the first other one that has one.
    pub fn all_ok<T, E: From<TrainError> + ToString>(&self, part: Result<T, E>) -> Result<T, E> {
        let Some(ranks) = self.ranks.as_ref().filter(|_| !self.state().ended) else { return part };
        match part {
            Ok(part) => self.all_gather(()).map(|_| part).map_err(E::from),
            Err(error) => {
                self.state().ended = true;
                // What others wait for is no matter, and whether they are there.
                let _ = self.exchange(ranks, &Message::<serde_json::Value>::Failed(error.to_string()));
                Err(error)
            }
        }
    }

    /// The sum of each number over all ranks.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn all_reduce_sum(&self, values: &[f64]) -> Result<Vec<f64>, TrainError> {
        match &self.ranks {
            Some(ranks) => Ok(self.noted(ranks.all_reduce_sum(values, self.timeouts()))?),
            None => Ok(values.to_vec()),
        }
    }

    /// Has the ranks' cards add up gradients by themselves, by NCCL, where each rank has one of its own; where they cannot, says why,
    /// and gradients go through the host.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn connect_cards(&self, device: &Device) -> Result<(), TrainError> {
        if self.is_alone() || self.state().cards.is_some() {
            return Ok(());
        }
        let cards = self.joined_cards(device)?;
        self.state().cards = Some(cards);
        Ok(())
    }

    fn joined_cards(&self, device: &Device) -> Result<Option<Arc<Communicator>>, TrainError> {
        let own = match Communicator::new_id(device) {
            Ok(id) => Card::Ready(id),
            Err(NcclError::NotCuda) => Card::None,
            Err(error) => Card::Failed(error.to_string()),
        };
        let cards = self.all_gather(own)?;
        if cards.iter().all(|card| matches!(card, Card::None)) {
            return Ok(None);
        }
        let (mut ids, mut reasons) = (Vec::new(), Vec::new());
        for (rank, card) in cards.into_iter().enumerate() {
            match card {
                Card::Ready(id) => ids.push(id),
                Card::None => reasons.push(format!("{} has no card of NVIDIA's", self.name(rank))),
                Card::Failed(reason) => reasons.push(format!("{}: {reason}", self.name(rank))),
            }
        }
        let mut cards = None;
        if reasons.is_empty() {
            let joined = Communicator::join(device, &ids[0], self.rank(), self.count(), LONGEST_JOIN);
            let said = self.all_gather(joined.as_ref().err().map(NcclError::to_string))?;
            let failed = said.into_iter().enumerate().filter_map(|(rank, said)| Some((rank, said?)));
            reasons.extend(failed.map(|(rank, reason)| format!("{}: {reason}", self.name(rank))));
            cards = joined.ok().map(Arc::new);
        }
        if let Some(reason) = reasons.first() {
            if self.is_main_process() {
                tracing::warn!("gradients go through the host, and not from card to card: {reason}");
            }
            return Ok(None);
        }
        if self.is_main_process() {
            tracing::info!("gradients go from card to card, by NCCL");
        }
        Ok(cards)
    }

    /// What adds up gradients on `device`, where there are several ranks.
    pub(crate) fn all_reduce(&self, device: &Device) -> Option<AllReduce> {
        let ranks = self.ranks.clone()?;
        Some(AllReduce { ranks, cards: self.state().cards.clone().flatten(), device: device.clone().inner() })
    }

    /// Waits for the sums of what was sent while the backward pass went on.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn receive_early(&self, early: SentEarly, device: &Device) -> Result<ReceivedEarly, TrainError> {
        let mut sum = GradientSum::default();
        let sent = self.noted(early.sent)?;
        if let Some(sums) = self.all_reduce(device) {
            self.receive(&mut sum, sent, &sums)?;
        }
        Ok(ReceivedEarly { sum, absent: early.absent })
    }

    fn receive(&self, sum: &mut GradientSum, sent: Vec<Sent>, sums: &AllReduce) -> Result<(), TrainError> {
        let waited = self.noted(sum.receive(sent, sums, self.timeouts()));
        if let (Err(_), Some(cards)) = (&waited, &sums.cards) {
            cards.abort();
        }
        self.state().waited += waited?;
        Ok(())
    }

    /// Adds up the gradients of all ranks, so that each has the sum; where the optimizer's state is shared out, of the
    /// larger ones its own part. One that no rank has is in no sum. Some of them may have been added up early.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn sum(
        &self,
        gradients: &mut GradientSum,
        early: ReceivedEarly,
        shard: Option<Shard>,
        device: &Device,
    ) -> Result<(), TrainError> {
        let Some(sums) = self.all_reduce(device) else { return Ok(()) };
        let mut own = (gradients.sizes(), early.absent);
        // Nearly always all have gradients of the same parameters, and a number says so.
        let mut hasher = DefaultHasher::new();
        own.hash(&mut hasher);
        let hash = hasher.finish();
        if self.all_gather(hash)?.iter().any(|other| *other != hash) {
            let (sizes, absent): (Vec<_>, Vec<_>) = self.all_gather(own)?.into_iter().unzip();
            let nowhere = |name: &String| absent.iter().all(|absent| absent.contains(name));
            let absent = absent[0].iter().filter(|name| nowhere(name)).cloned().collect();
            own = (sizes.into_iter().flatten().collect(), absent);
        }
        let (sizes, absent) = own;
        let absent: Vec<String> = absent.into_iter().filter(|name| !sizes.contains_key(name)).collect();
        let sent = self.noted(gradients.send(&sums, sizes, shard))?;
        self.receive(gradients, sent, &sums)?;
        gradients.add_early(early.sum);
        absent.iter().for_each(|name| drop(gradients.take(name)));
        Ok(())
    }

    /// What each rank has of some numbers, one list of numbers after the other.
    ///
    /// # Errors
    /// When a rank is gone or silent.
    pub(crate) fn all_gather_floats(&self, own: Vec<Vec<f32>>) -> Result<Vec<Vec<Vec<f32>>>, TrainError> {
        let Some(ranks) = &self.ranks else { return Ok(own.into_iter().map(|own| vec![own]).collect()) };
        let asked: Result<Vec<_>, RankError> = own
            .into_iter()
            .map(|own| ranks.all_gather(own.iter().flat_map(|value| value.to_le_bytes()).collect()))
            .collect();
        let timeouts = self.timeouts();
        let found: Result<Vec<_>, RankError> =
            asked.and_then(|asked| asked.into_iter().map(|found| found.wait(timeouts)).collect());
        let found = self.noted(found)?;
        Ok(found.into_iter().map(|heard| heard.into_iter().map(|bytes| floats(&bytes)).collect()).collect())
    }

    /// How long this rank waited for the sums of gradients since this was asked last, and how long they were on their way.
    pub(crate) fn time_on_the_way(&self) -> (Duration, Duration) {
        let busy = self.ranks.as_ref().map_or(Duration::ZERO, |ranks| ranks.time_on_the_way());
        (std::mem::take(&mut self.state().waited), busy)
    }

    fn exchange<T: Serialize + DeserializeOwned>(
        &self,
        ranks: &Ranks,
        said: &Message<T>,
    ) -> Result<Vec<Message<T>>, TrainError> {
        let data = |error: serde_json::Error| TrainError::Data(error.into());
        let said = serde_json::to_vec(said).map_err(data)?;
        let heard = ranks.all_gather(said).and_then(|heard| heard.wait(self.timeouts()));
        self.noted(heard)?.iter().map(|bytes| serde_json::from_slice(bytes).map_err(data)).collect()
    }

    /// Keeps in mind who was silent.
    fn noted<T, E: Into<TrainError>>(&self, found: Result<T, E>) -> Result<T, TrainError> {
        let found = found.map_err(E::into);
        if let Err(TrainError::Ranks(error)) = &found {
            let mut state = self.state();
            state.broken = true;
            match error {
                RankError::Silent { missing, .. } => state.silent = missing.iter().map(|peer| peer.rank).collect(),
                RankError::Stopped { .. } => state.stopped = true,
                _ => {}
            }
        }
        found
    }

    fn timeouts(&self) -> Timeouts {
        self.state().timeouts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// NCCL joins cards of one machine within seconds, and of several within some more.
const LONGEST_JOIN: Duration = Duration::from_secs(120);

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap_or_default())).collect()
}
