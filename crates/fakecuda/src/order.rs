//! Happens-before order by the rules of CUDA's streams. Work of one stream happens in order. Work of two streams is
//! unordered unless one waited for an event of the other, or the host waited for one before it queued work on the
//! other.
//!
//! A vector clock for each stream holds, per stream, the last operation that is known to be done (Mattern, "Virtual
//! time and global states of distributed systems", 1989).

use std::collections::BTreeMap;
use std::ops::Range;

/// Vector clock: the last operation of each stream that is known to be done, by the stream's number.
#[derive(Clone, Debug, Default)]
pub struct Seen(Vec<u64>);

impl Seen {
    fn knows(&self, done: Done) -> bool {
        self.0.get(done.stream).is_some_and(|last| *last >= done.operation)
    }

    fn learn(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (known, more) in self.0.iter_mut().zip(&other.0) {
            *known = (*known).max(*more);
        }
    }
}

/// An operation, by its stream and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    stream: usize,
    operation: u64,
}

/// Clocks of the streams and the host, and the last writes and uses of memory.
#[derive(Debug, Default)]
pub struct Order {
    host: Seen,
    streams: Vec<Seen>,
    /// Copies to the device by start address, with end address and operation.
    written: BTreeMap<u64, (u64, Done)>,
    /// Last use of an address by each stream, in kernels and copies from it.
    used: BTreeMap<u64, Vec<Done>>,
}

impl Order {
    /// Adds a stream; returns its number.
    pub fn add_stream(&mut self) -> usize {
        self.streams.push(Seen::default());
        self.streams.len() - 1
    }

    /// Returns the next operation of a stream, which comes after everything that the host waited for.
    pub fn next(&mut self, stream: usize) -> Done {
        let seen = &mut self.streams[stream];
        seen.learn(&self.host);
        seen.0.resize(seen.0.len().max(stream + 1), 0);
        seen.0[stream] += 1;
        Done { stream, operation: seen.0[stream] }
    }

    /// Returns the clock of an event recorded on the stream.
    pub fn record(&self, stream: usize) -> Seen {
        self.streams[stream].clone()
    }

    /// Makes the stream continue after an event.
    pub fn wait(&mut self, stream: usize, event: &Seen) {
        self.streams[stream].learn(event);
    }

    /// Records that the host waited for an event.
    pub fn host_waited(&mut self, event: &Seen) {
        self.host.learn(event);
    }

    /// Records that the host waited for a stream.
    pub fn host_waited_for(&mut self, stream: usize) {
        self.host.learn(&self.streams[stream]);
    }

    /// Records that the host waited for all streams.
    pub fn host_waited_for_all(&mut self) {
        for seen in &self.streams {
            self.host.learn(seen);
        }
    }

    /// Records a copy to the device; returns whether it waited for all users of the memory that it overwrites.
    pub fn write(&mut self, range: Range<u64>, done: Done) -> bool {
        let seen = &self.streams[done.stream];
        let waited = self.used.range(range.clone()).all(|(_, uses)| uses.iter().all(|other| seen.knows(*other)));
        self.forget(range.clone());
        self.written.insert(range.start, (range.end, done));
        waited
    }

    /// Records that an operation uses the memory at `address`; returns whether it waited for the copy that wrote it.
    pub fn use_of(&mut self, address: u64, done: Done) -> bool {
        let uses = self.used.entry(address).or_default();
        match uses.iter_mut().find(|other| other.stream == done.stream) {
            Some(last) => *last = done,
            None => uses.push(done),
        }
        let last = self.written.range(..=address).next_back();
        let writer = last.filter(|(_, (end, _))| address < *end).map(|(_, (_, writer))| *writer);
        writer.is_none_or(|writer| self.streams[done.stream].knows(writer))
    }

    /// Forgets writes and uses of `range`, which is overwritten or freed.
    pub fn forget(&mut self, range: Range<u64>) {
        let written: Vec<u64> = self.written.range(range.clone()).map(|(start, _)| *start).collect();
        let used: Vec<u64> = self.used.range(range).map(|(address, _)| *address).collect();
        for start in written {
            self.written.remove(&start);
        }
        for address in used {
            self.used.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a copy on one stream is ordered with a use on another, with `between` in the middle.
    fn is_ordered(between: impl FnOnce(&mut Order, usize, usize)) -> bool {
        let mut order = Order::default();
        let [copies, kernels] = [order.add_stream(), order.add_stream()];
        let copy = order.next(copies);
        assert!(order.write(100..200, copy));
        between(&mut order, copies, kernels);
        let kernel = order.next(kernels);
        order.use_of(160, kernel)
    }

    #[test]
    fn streams_are_ordered_by_events_and_by_the_host_alone() {
        assert!(!is_ordered(|_, _, _| ()), "nobody waited");
        assert!(is_ordered(|order, copies, kernels| {
            let event = order.record(copies);
            order.wait(kernels, &event);
        }));
        assert!(is_ordered(|order, copies, _| order.host_waited_for(copies)));
        assert!(is_ordered(|order, _, _| order.host_waited_for_all()));
        assert!(!is_ordered(|order, copies, kernels| {
            let event = order.record(kernels);
            order.wait(copies, &event);
        }));
        assert!(!is_ordered(|order, copies, kernels| {
            let event = order.record(copies);
            let copy = order.next(copies);
            assert!(order.write(120..180, copy), "a stream is in order with itself");
            order.wait(kernels, &event);
        }));
    }

    #[test]
    fn what_is_overwritten_is_waited_for() {
        let mut order = Order::default();
        let [copies, kernels] = [order.add_stream(), order.add_stream()];
        let kernel = order.next(kernels);
        assert!(order.use_of(50, kernel));
        let copy = order.next(copies);
        assert!(order.write(60..90, copy), "nobody uses that");
        let copy = order.next(copies);
        assert!(!order.write(40..60, copy));
        let kernel = order.next(kernels);
        order.use_of(44, kernel);
        order.host_waited_for(kernels);
        let copy = order.next(copies);
        assert!(order.write(40..60, copy));
    }

    #[test]
    fn memory_that_was_freed_has_no_past() {
        let mut order = Order::default();
        let [copies, kernels] = [order.add_stream(), order.add_stream()];
        let copy = order.next(copies);
        order.write(0..100, copy);
        order.forget(0..100);
        let kernel = order.next(kernels);
        assert!(order.use_of(10, kernel));
    }
}
