//! The nine tasks mixed: each sample is one of theirs, drawn with equal probability.
//!
//! Sample `index` of the mixture is sample `index` of the task that was drawn, in the same split and of the same seed.
//! It begins with that task's marker and says in [`super::Sample::task`] which one it is, so that results of the
//! mixture can be given task by task and averaged over tasks.
//!
//! ```text
//! atpm-train suite show --task mixed_all --split train --seed 9 --count 1
//! copy n10 v0 v25 v59 v30 = [v0] [v25] [v59] [v30]
//! ```
//!
//! Sizes, the places that count and what solves it are those of the nine. One memory that does all of it is asked for.

use super::Task;
use super::draw::Draw;

/// The tasks of the mixture.
pub(super) const TASKS: [Task; 9] = [
    Task::KvRecall,
    Task::InverseRecall,
    Task::Overwrite,
    Task::Rebind,
    Task::PointerChase,
    Task::GatedWrite,
    Task::Copy,
    Task::SelectiveCopy,
    Task::Sort,
];

/// The task of one sample.
pub(super) fn pick(draw: &mut Draw) -> Task {
    draw.pick(&TASKS)
}
