//! Inputs of operations on a CPU, as they are kept for the backward pass.

use crate::host::floats;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType, bf16};
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use undertone_kernels::matrix::rounded;

/// What was rounded last on a thread: where it lies in memory, and what it became.
struct Rounded {
    source: Weak<Bytes>,
    layout: Layout,
    numbers: FlexTensor,
}

thread_local! {
    static LAST: RefCell<Option<Rounded>> = const { RefCell::new(None) };
}

/// Returns what the backward pass needs of a contiguous input in f32 that only products read: in bf16 if that is what products round it
/// to, in half of the memory. An input that other operations hold, too, like that of queries, keys and values, is rounded once for all
/// in a row that read it.
pub(crate) fn kept_input(x: FlexTensor) -> FlexTensor {
    if let Some(known) = known(&x) {
        return known;
    }
    rounded(floats(&x)).map(|numbers| remember(&x, numbers)).unwrap_or(x)
}

/// Returns an input as it was rounded by one of the last operations on this thread.
pub(crate) fn known(x: &FlexTensor) -> Option<FlexTensor> {
    LAST.with_borrow(|last| {
        let last = last.as_ref().filter(|last| last.layout == *x.layout())?;
        let source = last.source.upgrade()?;
        Arc::ptr_eq(&source, &x.data_arc()).then(|| last.numbers.clone())
    })
}

/// Makes a tensor of an input's rounded numbers, and keeps it for other operations on the same input.
pub(crate) fn remember(x: &FlexTensor, numbers: Vec<bf16>) -> FlexTensor {
    let layout = Layout::contiguous(x.layout().shape().clone());
    let numbers = FlexTensor::new(Bytes::from_elems(numbers), layout, DType::BF16);
    let (source, layout) = (Arc::downgrade(&x.data_arc()), x.layout().clone());
    LAST.set(Some(Rounded { source, layout, numbers: numbers.clone() }));
    numbers
}

/// Forgets what was rounded last on this thread.
pub(super) fn forget() {
    LAST.set(None);
}
