//! CTC: text from an encoder alone, a label or a blank at each position.

use super::speech::{RowGroup, SpeechDecoder, SpeechStates, SpeechTargets, row_ids};
use burn::tensor::Tensor;
use undertone_ops::{ctc_greedy, ctc_loss};
use undertone_train::BoxError;

/// Decoder of an encoder that is trained by CTC (Graves et al., 2006): its
/// [`logits`](undertone_model::backbone::Backbone::logits) are those of its vocabulary and of the blank. Texts are
/// decoded greedily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ctc {
    /// Token of the blank.
    pub blank: usize,
}

impl SpeechDecoder for Ctc {
    fn losses(
        &self,
        states: SpeechStates,
        targets: &SpeechTargets,
        groups: &[Vec<usize>],
        _: f64,
    ) -> Result<Vec<Tensor<1>>, BoxError> {
        let device = states.states.device();
        let (lengths, logits) = (states.lengths, logits(states));
        let loss = |rows: &Vec<usize>| {
            if rows.is_empty() {
                return Tensor::zeros([1], &device);
            }
            let labels = |row: &usize| targets.row(*row).iter().copied().filter(|label| *label >= 0).collect();
            let labels: Vec<Vec<i64>> = rows.iter().map(labels).collect();
            let lengths: Vec<usize> = rows.iter().map(|row| lengths[*row]).collect();
            ctc_loss(of_rows(&logits, rows), &labels, &lengths, self.blank)
        };
        Ok(groups.iter().map(loss).collect())
    }

    fn generate(
        &self,
        states: SpeechStates,
        _: &[Vec<u32>],
        groups: &[RowGroup],
    ) -> Result<Vec<Vec<Vec<u32>>>, BoxError> {
        let lengths = states.lengths;
        let all = ctc_greedy(logits(states), lengths, self.blank);
        Ok(groups.iter().map(|group| group.rows.iter().map(|row| all[*row].clone()).collect()).collect())
    }
}

/// Returns the logits at each position, `[batch, time, vocabulary]`.
fn logits(SpeechStates { network, states, task, .. }: SpeechStates) -> Tensor<3> {
    network.logits(match task {
        Some(task) => states + task.unsqueeze_dim(1),
        None => states,
    })
}

fn of_rows(logits: &Tensor<3>, rows: &[usize]) -> Tensor<3> {
    if rows.len() == logits.dims()[0] {
        return logits.clone();
    }
    logits.clone().select(0, row_ids(rows, &logits.device()))
}
