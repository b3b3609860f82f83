//! Loss terms of the router besides the tasks' own losses. Every term is a sum over the batch.

use crate::backbone::row_ids;
use crate::config::RoutingWeights;
use burn::tensor::activation::{log_softmax, softplus};
use burn::tensor::{Device, Tensor};
use undertone_model::router::Routing;
use undertone_ops::{cross_entropy, matmul, sum};
use undertone_train::{LossSum, LossTerm};

/// Returns the names and weights of the terms, which are those with a weight above 0.
fn weighted(weights: &RoutingWeights) -> impl Iterator<Item = (&'static str, f64)> {
    weights.all().into_iter().filter(|(name, weight)| *name != "task" && *weight > 0.0)
}

/// Lists the loss terms of a batch of `samples` samples, without the tasks' own losses.
pub fn routing_terms(weights: &RoutingWeights, samples: usize) -> impl Iterator<Item = LossTerm> {
    weighted(weights).map(move |(name, weight)| LossTerm { name: name.into(), weight, count: samples as f64 })
}

/// Computes the sums of the [`routing_terms`] of a batch. `pooled` is the router's input, `[batch, d_model]`,
/// `temperature` the router's temperature, `[1]`, and `tasks` the task of each sample.
pub fn routing_sums(
    weights: &RoutingWeights,
    routing: &Routing,
    pooled: Tensor<2>,
    temperature: Tensor<1>,
    tasks: &[usize],
    device: &Device,
) -> Vec<LossSum> {
    let batch = tasks.len() as f64;
    let p = routing.probabilities();
    let sum = |(name, _): (&'static str, f64)| {
        let sum = match name {
            "routing" => cross_entropy(routing.logits.clone(), row_ids(tasks, device), Default::default()).sum,
            "load_balance" => load_imbalance(p.clone(), tasks, device).mul_scalar(batch),
            "efficiency" => inefficiency(p.clone()),
            "consistency" => inconsistency(pooled.clone(), p.clone()).mul_scalar(batch),
            "entropy" => entropy(routing.logits.clone()),
            "temperature" => temperature.clone().sub_scalar(1.0).square().mul_scalar(batch),
            _ => confidence_loss(routing, tasks, device),
        };
        (name.into(), sum)
    };
    weighted(weights).map(sum).collect()
}

/// Computes the mean squared difference between each adapter's mean use and its task's share of the batch, over the
/// squared uniform share. In a batch with equally many samples of every task, it is the variance of the mean use over
/// the squared ideal share: 0 if all adapters are used equally, `adapters - 1` if only one is used. In other batches,
/// an adapter is only expected to be used as much as its task occurs.
fn load_imbalance(p: Tensor<2>, tasks: &[usize], device: &Device) -> Tensor<1> {
    let [_, adapters] = p.dims();
    let mut shares = vec![0.0_f32; adapters];
    tasks.iter().for_each(|task| shares[*task] += 1.0 / tasks.len() as f32);
    let shares = Tensor::<1>::from_floats(shares.as_slice(), device).unsqueeze();
    (p.mean_dim(0) - shares).square().mean().mul_scalar((adapters * adapters) as f64)
}

/// Computes the sum of `1 - Σ p²`: 0 for a sample whose gates open one adapter alone, near 1 if they open many.
fn inefficiency(p: Tensor<2>) -> Tensor<1> {
    sum(p.clone().ones_like().mean_dim(1)) - sum(p.square())
}

/// Computes the mean squared distance between the gates of two inputs, weighted by their similarity: the cosine of
/// their pooled states less the batch's mean, where it is above 0. All states share that mean, so all would be similar
/// with it.
fn inconsistency(pooled: Tensor<2>, p: Tensor<2>) -> Tensor<1> {
    let centred = pooled.clone() - pooled.mean_dim(0);
    let length = centred.clone().square().sum_dim(1).sqrt().clamp_min(1e-6);
    let direction = centred / length;
    let rows = p.dims()[0];
    let others = Tensor::<2>::ones([rows, rows], &p.device()) - Tensor::eye(rows, &p.device());
    let alike = matmul(direction.clone(), direction.transpose()).clamp_min(0.0) * others;
    let squares = p.clone().square().sum_dim(1);
    let apart = squares.clone() + squares.transpose() - matmul(p.clone(), p.transpose()).mul_scalar(2.0);
    sum(alike.clone() * apart) / sum(alike).clamp_min(1e-6)
}

/// Computes the sum of the entropies of the gates, in nats.
fn entropy(logits: Tensor<2>) -> Tensor<1> {
    let log_p = log_softmax(logits, 1);
    sum(log_p.clone().exp() * log_p).neg()
}

/// Computes the sum of the binary cross-entropies of the router's confidence against whether its choice is right.
fn confidence_loss(routing: &Routing, tasks: &[usize], device: &Device) -> Tensor<1> {
    let right = routing.choice_ids().equal(row_ids(tasks, device)).float();
    let logit = routing.confidence.clone();
    sum(softplus(logit.clone(), 1.0) - right * logit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(x: Tensor<1>) -> f32 {
        x.into_scalar()
    }

    fn p<const K: usize, const B: usize>(rows: [[f32; K]; B]) -> Tensor<2> {
        Tensor::from_floats(rows, &Device::default())
    }

    #[test]
    fn every_listed_term_and_no_other_has_a_sum() {
        let device = Device::default();
        let weights = RoutingWeights { entropy: 0.0, ..Default::default() };
        let routing = Routing { logits: Tensor::zeros([2, 3], &device), confidence: Tensor::zeros([2], &device) };
        let (pooled, temperature) = (Tensor::ones([2, 4], &device), Tensor::from_floats([3.0], &device));
        let sums = routing_sums(&weights, &routing, pooled, temperature, &[0, 2], &device);
        let terms: Vec<LossTerm> = routing_terms(&weights, 2).collect();
        assert!(terms.iter().map(|term| &term.name).eq(sums.iter().map(|(name, _)| name)), "{terms:?}");
        assert!(terms.len() == 6 && terms.iter().all(|term| term.name != "entropy" && term.count == 2.0), "{terms:?}");
        let sum = |name: &str| value(sums.iter().find(|(other, _)| other == name).expect(name).1.clone());
        assert!((sum("routing") - 2.0 * 3.0_f32.ln()).abs() < 1e-5 && (sum("temperature") - 8.0).abs() < 1e-5);
    }

    #[test]
    fn imbalance_is_zero_when_every_task_has_its_share_and_grows_to_one_adapter() {
        let device = Device::default();
        let of = |p: Tensor<2>, tasks: &[usize]| value(load_imbalance(p, tasks, &device));
        assert!(of(p([[1.0, 0.0], [0.0, 1.0]]), &[0, 1]).abs() < 1e-6);
        assert!((of(p([[1.0, 0.0, 0.0]; 3]), &[0, 1, 2]) - 2.0).abs() < 1e-5);
        assert!(of(p([[1.0, 0.0], [1.0, 0.0]]), &[0, 0]).abs() < 1e-6, "a batch of one task uses one adapter");
    }

    #[test]
    fn sparse_gates_are_efficient() {
        assert!(value(inefficiency(p([[1.0, 0.0], [0.0, 1.0]]))).abs() < 1e-6);
        assert!((value(inefficiency(p([[0.5, 0.5], [1.0, 0.0]]))) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn inconsistency_is_what_the_pairs_say() {
        let device = Device::default();
        undertone_ops::seed(2);
        let pooled = undertone_ops::normal([5, 3], 1.0, &device).add_scalar(1.0);
        let gates = burn::tensor::activation::softmax(undertone_ops::normal([5, 4], 1.0, &device), 1);
        let rows = |x: Tensor<2>| -> Vec<Vec<f32>> {
            let width = x.dims()[1];
            x.try_into_vec_as::<f32>().expect("floats").chunks(width).map(<[f32]>::to_vec).collect()
        };
        let (h, g) = (rows(pooled.clone() - pooled.clone().mean_dim(0)), rows(gates.clone()));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let (mut sum, mut total) = (0.0, 0.0);
        for i in 0..5 {
            for j in (0..5).filter(|j| *j != i) {
                let cosine = dot(&h[i], &h[j]) / (dot(&h[i], &h[i]) * dot(&h[j], &h[j])).sqrt();
                let apart: f32 = g[i].iter().zip(&g[j]).map(|(a, b)| (a - b).powi(2)).sum();
                sum += cosine.max(0.0) * apart;
                total += cosine.max(0.0);
            }
        }
        assert!((value(inconsistency(pooled, gates)) - sum / total).abs() < 1e-4);
    }

    #[test]
    fn entropy_is_in_nats() {
        assert!((value(entropy(p([[0.0, 0.0], [0.0, 100.0]]))) - 2.0_f32.ln()).abs() < 1e-4);
    }
}
