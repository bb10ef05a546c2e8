//! Values move from key to key again and again.
//!
//! Line: that of [`super::rebind`], with its marker, but four bindings `k v` and then all moves `> k k'`: a value moves up to
//! four times on the mean in training and twelve times in Stress, and what is lost of it in a move is lost again in the
//! next. Asked for, with four questions, is one time in four a key that lost its value (the answer is `unknown`), else a
//! key that has one.
//!
//! ```text
//! atpm-train suite show --task relocate --split train --seed 6 --count 1
//! rebind k10 v18 k0 v11 k35 v35 k14 v6 > k10 k16 > k16 k22 > k14 k37 > k35 k11 > k11 k25 ? k0 = [v11] ? k25 = [v35] ? k22 = [v18] ? k37 = [v6]
//! ```
//!
//! Size: moves. The loss counts at each `=`, for one value or `unknown`. A memory that carries what it holds at one
//! address to another as it was solves it; reading a value and writing it anew takes a layer for each move.

use super::draw::{Draw, Sizes};
use super::rebind::{Told, ask};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "relocate", unit: "moves", sizes: Sizes { least: 4, most: 16 }, write };

const BINDINGS: usize = 4;

fn write(draw: &mut Draw, size: usize) -> Sample {
    let Told { line, held, left, bound, .. } = Told::new(draw, BINDINGS, size);
    let questions = ask(draw, &held, [left, bound.clone(), bound.clone(), bound]);
    Sample::questions(Task::Relocate, line, questions)
}
