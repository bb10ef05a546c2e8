//! Values move from key to key again and again.
//!
//! Line: that of [`super::rebind`], with its marker, but 4 to 12 bindings `k v`, whatever the size, and then as many moves
//! `> k k'` as it says: a value moves once or twice in training and five times in Stress on the mean, and what is lost
//! of it in a move is lost again in the next. Asked for, with four questions, is one time in four a key that lost its
//! value (the answer is `unknown`), else a key that has one.
//!
//! ```text
//! atpm-train suite show --task relocate --split train --seed 6 --count 1
//! rebind k10 v4 k0 v21 k53 v5 k26 v58 k21 v61 k9 v10 k51 v37 k31 v35 > k9 k41 > k21 k42 > k53 k44 > k42 k28 > k10 k19 ? k53 = [unknown] ? k44 = [v5] ? k51 = [v37] ? k41 = [v10]
//! ```
//!
//! Size: moves. The loss counts at each `=`, for one value or `unknown`. A memory that carries what it holds at one
//! address to another as it was solves it; reading a value and writing it anew takes a layer for each move.

use super::draw::{Draw, Sizes};
use super::rebind::{Told, ask};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "relocate", unit: "moves", sizes: Sizes { least: 4, most: 16 }, write };

/// With four, whatever the size, most values move several times, and no model that was tried left its first plateau.
const BINDINGS: std::ops::RangeInclusive<usize> = 4..=12;

fn write(draw: &mut Draw, size: usize) -> Sample {
    let bindings = BINDINGS.start() + draw.below(BINDINGS.count());
    let Told { line, held, left, bound, .. } = Told::new(draw, bindings, size);
    let questions = ask(draw, &held, [left, bound.clone(), bound.clone(), bound]);
    Sample::questions(Task::Relocate, line, questions)
}
