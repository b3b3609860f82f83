//! The group of processes that train one run together.

use crate::TrainError;
use crate::objective::Share;
use crate::shard::Shard;
use burn::tensor::Device;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use undertone_ops::{Communicator, NcclError};
use undertone_ranks::{RankError, Ranks, Timeouts};

/// The ranks that train a run together. The default is a single process.
#[derive(Clone, Debug, Default)]
pub struct ProcessGroup {
    /// `None` for a single process.
    ranks: Option<Arc<Ranks>>,
    state: Arc<Mutex<State>>,
}

/// State of the communication.
#[derive(Debug, Default)]
struct State {
    timeouts: Timeouts,
    /// Whether a rank has failed, after which no rank sends or receives anything.
    ended: bool,
    /// Whether ranks can no longer reach each other.
    broken: bool,
    /// Ranks that did not answer in time.
    silent: Vec<usize>,
    /// Whether this process was stopped for so long that the others have reported it.
    stopped: bool,
    /// Time spent waiting for gradient sums, and the time that cards took for theirs.
    sums: SumTimes,
    /// NCCL communicator of the ranks' cards, once it is known whether they have one.
    cards: Option<Option<Arc<Communicator>>>,
}

/// Means of summing gradients over all ranks.
#[derive(Clone, Debug)]
pub(crate) struct AllReduce {
    pub ranks: Arc<Ranks>,
    /// NCCL communicator of the ranks' cards, if they sum gradients themselves.
    pub cards: Option<Arc<Communicator>>,
    pub device: Device,
}

/// Times of sums that were received.
#[derive(Debug, Default)]
pub(crate) struct SumTimes {
    /// Time that this rank waited for them.
    pub waited: Duration,
    /// Time that cards took for them; the host's transport counts its own.
    pub on_cards: Duration,
}

/// Report of a rank about its card.
#[derive(Serialize, Deserialize)]
enum Card {
    /// Can join a communicator. The first rank's id is the communicator's.
    Ready(Vec<u8>),
    /// Not a CUDA device.
    None,
    Failed(String),
}

/// Message of a rank. A rank that fails can send it without knowing which value the others expect.
#[derive(Serialize, Deserialize)]
enum Message<T> {
    Value(T),
    Failed(String),
}

impl ProcessGroup {
    /// Makes a process group of `ranks`.
    pub fn of(ranks: Arc<Ranks>) -> Self {
        Self { ranks: (ranks.count() > 1).then_some(ranks), state: Arc::default() }
    }

    /// Splits the ranks into so many subgroups of sizes as equal as possible. Returns the index of this rank's
    /// subgroup, and the subgroup.
    pub fn split(&self, groups: usize) -> (usize, Self) {
        let Some(ranks) = &self.ranks else { return (0, Self::default()) };
        let group_of = |rank: usize| rank * groups / ranks.count();
        let own = group_of(ranks.rank());
        let members: Vec<usize> = (0..ranks.count()).filter(|rank| group_of(*rank) == own).collect();
        (own, Self::of(Arc::new(ranks.group(&members))))
    }

    /// Number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.ranks.as_ref().map_or(0, |ranks| ranks.rank())
    }

    /// Number of ranks.
    pub fn count(&self) -> usize {
        self.ranks.as_ref().map_or(1, |ranks| ranks.count())
    }

    /// Whether there is only one rank.
    pub fn is_alone(&self) -> bool {
        self.ranks.is_none()
    }

    /// Whether this is the rank that writes files (rank 0).
    pub fn is_main_process(&self) -> bool {
        self.rank() == 0
    }

    /// Whether this rank reports errors to the user, once [`all_ok`](Self::all_ok) has sent them to all ranks. It is
    /// the first rank that still answers.
    pub fn reports_errors(&self) -> bool {
        let state = self.state();
        !state.stopped && (0..self.rank()).all(|rank| state.silent.contains(&rank))
    }

    /// Whether the first rank may still be saving, and cannot tell when it is done. Ranks that can no longer reach each
    /// other must not exit before it, because a launcher ends all processes once one has failed.
    pub fn leaves_first_rank_behind(&self) -> bool {
        let state = self.state();
        state.broken && !self.is_main_process() && !state.silent.contains(&0)
    }

    /// Returns the name of a rank for messages: its number, and its host.
    pub fn name(&self, rank: usize) -> String {
        self.ranks.as_ref().map_or_else(|| format!("rank {rank}"), |ranks| ranks.name(rank).to_string())
    }

    /// Returns this rank's share of the batches, for steps of `window` batches.
    pub(crate) fn share(&self, window: usize) -> Share {
        Share { rank: self.rank(), count: self.count(), window }
    }

    /// Returns this rank's shard of the optimizer state, for runs that shard it.
    pub(crate) fn shard(&self) -> Shard {
        Shard { rank: self.rank(), count: self.count() }
    }

    /// Sets the timeouts of answers and heartbeats for training steps, in which ranks are never far apart.
    pub(crate) fn set_timeout(&self, seconds: u64) {
        let seconds = Duration::from_secs(seconds);
        self.state().timeouts = Timeouts { answer: seconds, heartbeat: seconds };
    }

    /// Waits for answers without a limit, as long as heartbeats come, for ranks that each train something of their own.
    pub fn disable_timeout(&self) {
        self.state().timeouts.answer = Duration::MAX;
    }

    /// Resets the timeout of answers to its default after steps, when ranks may be far apart, such as when one writes a
    /// large model. A process that has died is still detected by its heartbeat.
    pub(crate) fn reset_timeout(&self) {
        self.state().timeouts.answer = Timeouts::default().answer;
    }

    /// All-gather: returns the value of each rank, in rank order.
    ///
    /// # Errors
    /// When a rank has failed, is gone or silent.
    pub fn all_gather<T: Serialize + DeserializeOwned>(&self, said: T) -> Result<Vec<T>, TrainError> {
        let Some(ranks) = &self.ranks else { return Ok(vec![said]) };
        let mut received = Vec::with_capacity(ranks.count());
        for (rank, said) in self.exchange(ranks, &Message::Value(said))?.into_iter().enumerate() {
            match said {
                Message::Value(said) => received.push(said),
                Message::Failed(message) => {
                    self.state().ended = true;
                    return Err(TrainError::Rank { rank: self.name(rank), message });
                }
            }
        }
        Ok(received)
    }

    /// Sends the outcome of this rank's part to all ranks, and waits for theirs: an error of one rank becomes an error
    /// of all, whatever they are doing.
    ///
    /// # Errors
    /// That of this rank, or else that of the first other rank that failed.
    pub fn all_ok<T, E: From<TrainError> + ToString>(&self, part: Result<T, E>) -> Result<T, E> {
        let Some(ranks) = self.ranks.as_ref().filter(|_| !self.state().ended) else { return part };
        match part {
            Ok(part) => self.all_gather(()).map(|_| part).map_err(E::from),
            Err(error) => {
                self.state().ended = true;
                // It does not matter which value the others expect, nor whether they are there.
                let _ = self.exchange(ranks, &Message::<serde_json::Value>::Failed(error.to_string()));
                Err(error)
            }
        }
    }

    /// All-reduce: the sum of each number over all ranks.
    pub(crate) fn all_reduce_sum(&self, values: &[f64]) -> Result<Vec<f64>, TrainError> {
        match &self.ranks {
            Some(ranks) => Ok(self.noted(ranks.all_reduce_sum(values, self.timeouts()))?),
            None => Ok(values.to_vec()),
        }
    }

    /// Connects the ranks' cards by NCCL if each rank has a card of its own, so that gradients are summed from card to
    /// card. Otherwise logs the reason, and gradients go through the host.
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

    /// Returns the means of summing gradients on `device`; `None` for a single rank.
    pub(crate) fn all_reduce(&self, device: &Device) -> Option<AllReduce> {
        let ranks = self.ranks.clone()?;
        Some(AllReduce { ranks, cards: self.state().cards.clone().flatten(), device: device.clone().inner() })
    }

    /// Records the times of gradient sums that were received.
    pub(crate) fn add_sum_times(&self, SumTimes { waited, on_cards }: SumTimes) {
        let sums = &mut self.state().sums;
        sums.waited += waited;
        sums.on_cards += on_cards;
    }

    /// All-gather of lists of numbers: for each list, the list of every rank.
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
        Ok(found.into_iter().map(|received| received.into_iter().map(|bytes| floats(&bytes)).collect()).collect())
    }

    /// Returns the time that this rank waited for gradient sums since the last call, and the time that the sums took.
    pub(crate) fn time_on_the_way(&self) -> (Duration, Duration) {
        let busy = self.ranks.as_ref().map_or(Duration::ZERO, |ranks| ranks.time_on_the_way());
        let SumTimes { waited, on_cards } = std::mem::take(&mut self.state().sums);
        (waited, busy + on_cards)
    }

    fn exchange<T: Serialize + DeserializeOwned>(
        &self,
        ranks: &Ranks,
        said: &Message<T>,
    ) -> Result<Vec<Message<T>>, TrainError> {
        let data = |error: serde_json::Error| TrainError::Data(error.into());
        let said = serde_json::to_vec(said).map_err(data)?;
        let received = ranks.all_gather(said).and_then(|received| received.wait(self.timeouts()));
        self.noted(received)?.iter().map(|bytes| serde_json::from_slice(bytes).map_err(data)).collect()
    }

    /// Records which ranks did not answer.
    pub(crate) fn noted<T, E: Into<TrainError>>(&self, found: Result<T, E>) -> Result<T, TrainError> {
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

    /// Timeouts of answers and heartbeats at present.
    pub(crate) fn timeouts(&self) -> Timeouts {
        self.state().timeouts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum time to join. NCCL joins the cards of one machine within seconds, and those of several within some more.
const LONGEST_JOIN: Duration = Duration::from_secs(120);

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap_or_default())).collect()
}
