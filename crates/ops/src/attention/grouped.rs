//! Queries in groups that share keys and values (grouped-query attention, Ainslie et al., 2023).

use burn::tensor::Tensor;

/// Groups of query heads. Query head `h` attends to the keys and values of head `h / size`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    /// Number of heads of keys and values.
    pub heads: usize,
    /// Number of query heads in a group.
    pub size: usize,
}

impl Groups {
    /// Returns the groups of `heads` query heads that are `query` wide together, over keys that are `key` wide.
    ///
    /// # Panics
    /// If they do not divide each other.
    pub fn of(heads: usize, query: usize, key: usize) -> Self {
        assert!(query.is_multiple_of(heads), "{heads} heads do not divide a width of {query}");
        let d_head = query / heads;
        assert!(key > 0 && key.is_multiple_of(d_head), "heads of width {d_head} do not divide a width of {key}");
        let shared = key / d_head;
        assert!(heads.is_multiple_of(shared), "{shared} heads of keys do not divide {heads} heads");
        Self { heads: shared, size: heads / shared }
    }

    /// Lines the queries of a group up behind each other, as if they were later queries of one head: `[batch, queries,
    /// heads · size · d_head]` → `[batch, size · queries, heads · d_head]`. So keys and values are neither copied nor
    /// read more than once, but queries lose their order in time: it is for attention that is not causal.
    pub fn lined_up(self, query: Tensor<3>) -> Tensor<3> {
        let [batch, queries, width] = query.dims();
        if self.size == 1 {
            return query;
        }
        let d_head = width / (self.heads * self.size);
        let query = query.reshape([batch, queries, self.heads, self.size, d_head]).permute([0, 3, 1, 2, 4]);
        query.reshape([batch, self.size * queries, self.heads * d_head])
    }

    /// Undoes [`lined_up`](Self::lined_up) on the attention's output.
    pub fn side_by_side(self, out: Tensor<3>) -> Tensor<3> {
        let [batch, rows, width] = out.dims();
        if self.size == 1 {
            return out;
        }
        let out = out.reshape([batch, self.size, rows / self.size, self.heads, width / self.heads]);
        out.permute([0, 2, 3, 1, 4]).reshape([batch, rows / self.size, width * self.size])
    }

    /// Repeats keys or values for each query head of their group: `[batch, keys, heads · d_head]` → `[batch, keys, heads ·
    /// size · d_head]`.
    pub fn repeated(self, x: Tensor<3>) -> Tensor<3> {
        let [batch, keys, width] = x.dims();
        if self.size == 1 {
            return x;
        }
        let d_head = width / self.heads;
        let x = x.reshape([batch, keys, self.heads, 1, d_head]).expand([batch, keys, self.heads, self.size, d_head]);
        x.reshape([batch, keys, width * self.size])
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AttentionOptions, attention, state_attention};
    use super::*;
    use crate::testing::{Inputs, assert_close, compare, device, values};
    use burn::tensor::Bool;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn grouped_attention_is_that_to_repeated_keys(
            (batch, heads, size, half) in (1_usize..3, 1_usize..3, 2_usize..4, 1_usize..4),
            (queries, extra_keys) in (1_usize..30, 0_usize..20),
            (causal, padded) in any::<(bool, bool)>(),
        ) {
            let (groups, d_head, keys) = (Groups { heads, size }, 2 * half, queries + extra_keys);
            let inputs = Inputs::default();
            let query = inputs.tensor([batch, queries, heads * size * d_head]);
            let [key, value] = [(); 2].map(|()| inputs.tensor([batch, keys, heads * d_head]));
            let mask: Vec<bool> = (0..batch * keys).map(|i| i % keys % 3 == 2).collect();
            let mask = Tensor::<1, Bool>::from_bool(mask.as_slice(), &device()).reshape([batch, keys]);
            let mut options = AttentionOptions::new(heads * size).with_key_padding(padded.then_some(mask));
            options.causal = causal;
            let repeated = |[q, k, v]: [Tensor<3>; 3]| {
                attention(q, groups.repeated(k), groups.repeated(v), options.clone())
            };
            // The kernels may sum in another order for another number of queries.
            let run = |[q, k, v]: [Tensor<3>; 3]| attention(q, k, v, options.clone());
            compare([query, key, value], run, repeated);
        }
    }

    #[test]
    fn groups_attend_to_states_as_to_repeated_keys() {
        let (inputs, groups) = (Inputs::default(), Groups { heads: 2, size: 3 });
        let (query, states) = (inputs.tensor::<3>([2, 4, 24]).inner(), inputs.tensor::<3>([2, 40, 16]).inner());
        let weights = [(); 2].map(|()| inputs.tensor::<2>([8, 16]).inner());
        let found = state_attention(query.clone(), states.clone(), weights.clone(), 6, None);
        let [key, value] = weights.map(|weight| groups.repeated(crate::linear(states.clone(), weight, None)));
        assert_close(found, &values(attention(query, key, value, AttentionOptions::new(6))), 1e-5);
    }
}
