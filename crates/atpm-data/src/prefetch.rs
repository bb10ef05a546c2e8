//! Worker threads that prepare rows ahead of their use, without a say in their order.
//!
//! A worker owns some lanes and makes their rows in exactly the order in which the consumer takes them,
//! so one bounded channel a worker is enough and no timing can change what the consumer sees.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use crate::lane::{Lane, Plan, Row};
use crate::shards::panic_message;
use crate::{Error, Result, WordCache};

/// Rows of several lanes in turn, made ahead by worker threads. Dropping it ends the threads.
pub(crate) struct Prefetch {
    plan: Arc<Plan>,
    channels: Vec<Receiver<Result<Row>>>,
    threads: Vec<JoinHandle<()>>,
    n_lanes: usize,
    /// Rows taken from the lanes in turn, counted modulo `n_lanes`.
    turn: usize,
    waited: Duration,
}

impl Prefetch {
    /// Starts workers for `lanes`, no more than rayon's pool has threads; the first row comes from lane `turn` of them, and
    /// `ahead` rows are prepared in all.
    pub(crate) fn start(plan: &Arc<Plan>, lanes: Vec<Lane>, turn: usize, ahead: usize) -> Result<Self> {
        let n_lanes = lanes.len();
        let n_threads = rayon::current_num_threads().min(n_lanes);
        let mut shares: Vec<Vec<Lane>> = (0..n_threads).map(|_| Vec::new()).collect();
        for (index, lane) in lanes.into_iter().enumerate() {
            shares[index % n_threads].push(lane);
        }
        let (channels, threads) = (Vec::new(), Vec::new());
        let mut prefetch =
            Self { plan: Arc::clone(plan), channels, threads, n_lanes, turn, waited: Duration::ZERO };
        for (worker, share) in shares.into_iter().enumerate() {
            let (sender, receiver) = bounded(ahead.div_ceil(n_threads));
            // The lanes of worker `w` are `w, w + n, …`; the first to be taken at or after `turn` comes first.
            let passed = turn.saturating_sub(worker).div_ceil(n_threads) % share.len();
            let thread = std::thread::Builder::new()
                .name(format!("data-{worker}"))
                .spawn(move || work(share, passed, &sender))
                .map_err(|error| Error::Worker { reason: format!("cannot start a thread: {error}") })?;
            prefetch.channels.push(receiver);
            prefetch.threads.push(thread);
        }
        Ok(prefetch)
    }

    /// The next row in turn.
    pub(crate) fn next_row(&mut self) -> Result<Row> {
        let channel = &self.channels[self.turn % self.channels.len()];
        let row = match channel.try_recv() {
            Err(TryRecvError::Empty) => {
                let start = Instant::now();
                let row = channel.recv();
                self.waited += start.elapsed();
                row.map_err(|_| TryRecvError::Disconnected)
            }
            ready => ready,
        };
        self.turn = (self.turn + 1) % self.n_lanes;
        row.unwrap_or_else(|_| Err(Error::Worker { reason: "it ended without a message".into() }))
    }

    /// Threads at work.
    #[cfg(test)]
    pub(crate) fn workers(&self) -> usize {
        self.threads.len()
    }

    /// Seconds spent waiting for rows.
    pub(crate) fn wait_seconds(&self) -> f64 {
        self.waited.as_secs_f64()
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.plan.stop.store(true, Ordering::Relaxed);
        self.channels.clear();
        for thread in self.threads.drain(..) {
            // A worker's panic was sent as an error already, so there is nothing left to report.
            drop(thread.join());
        }
    }
}

/// Makes rows of `lanes` in turn, from `first` on, until one fails or nobody takes them.
fn work(mut lanes: Vec<Lane>, first: usize, rows: &Sender<Result<Row>>) {
    let n_lanes = lanes.len();
    let mut words = WordCache::default();
    for turn in first.. {
        let lane = &mut lanes[turn % n_lanes];
        let row = catch_unwind(AssertUnwindSafe(|| lane.next_row(&mut words)));
        let row = match row {
            Ok(Ok(Some(row))) => Ok(row),
            Ok(Ok(None)) => return,
            Ok(Err(error)) => Err(error),
            Err(panic) => Err(Error::Worker { reason: panic_message(&*panic) }),
        };
        let last = row.is_err();
        if rows.send(row).is_err() || last {
            return;
        }
    }
}
