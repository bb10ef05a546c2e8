//! The run's folder: what is in it, and how a run starts in one.
//!
//! config.toml (resolved settings) · metrics.jsonl · train.log · checkpoints/ · plots.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::config::{Run, changes};
use super::exit::{OrUser, user};
use super::whole;
use crate::checkpoint::{self, Loaded};

/// The resolved settings' name in a run folder.
pub const CONFIG: &str = "config.toml";

/// What `--resume` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Resume {
    /// Start afresh; a folder with checkpoints is refused.
    #[default]
    Never,
    /// The newest complete checkpoint of the run folder, or a fresh start.
    Auto,
    /// A checkpoint, or the newest one of a run folder. From another folder than the run's own it goes only into one
    /// without checkpoints.
    From(PathBuf),
}

impl From<Option<&str>> for Resume {
    fn from(flag: Option<&str>) -> Self {
        match flag {
            None | Some("never") => Self::Never,
            Some("auto") => Self::Auto,
            Some(path) => Self::From(path.into()),
        }
    }
}

/// Finds and checks the checkpoint that the run starts from, if any.
///
/// # Errors
/// A folder with checkpoints and no wish to resume from one of them, a checkpoint that is missing or damaged.
pub fn starting_point(run: &Run, resume: &Resume) -> anyhow::Result<Option<Loaded>> {
    starting_point_in(run.run_dir(), resume)
}

/// [`starting_point`] for a run of any kind.
///
/// # Errors
/// As [`starting_point`].
pub fn starting_point_in(run_dir: &Path, resume: &Resume) -> anyhow::Result<Option<Loaded>> {
    let path = match resume {
        Resume::Never => {
            refuse_checkpoints(run_dir)?;
            None
        }
        Resume::Auto => latest(run_dir)?,
        Resume::From(path) => {
            let path = named(path)?;
            // Another run's steps would be mixed with this folder's, and pruning would remove them.
            if !is_own(run_dir, &path) {
                refuse_checkpoints(run_dir)?;
            }
            Some(path)
        }
    };
    let Some(path) = path else {
        tracing::info!("fresh start in {}", run_dir.display());
        return Ok(None);
    };
    let loaded = checkpoint::load(&path)?;
    tracing::info!("resuming from {} at step {}", path.display(), loaded.state.step);
    Ok(Some(loaded))
}

/// Whether a checkpoint is one of this run folder's.
pub fn is_own(run_dir: &Path, checkpoint: &Path) -> bool {
    let own = run_dir.join("checkpoints").canonicalize();
    let parent = checkpoint.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf));
    own.is_ok_and(|own| Some(own) == parent)
}

/// Makes the folder and writes the resolved settings into it.
///
/// # Errors
/// A folder that cannot be made or written.
pub fn prepare(run: &Run) -> anyhow::Result<()> {
    create(run.run_dir())?;
    whole::write(&run.run_dir().join(CONFIG), run.to_toml()?.as_bytes())
}

/// Makes the folder, if it is not there.
///
/// # Errors
/// A folder that cannot be made.
pub fn create(run_dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(run_dir)
        .with_context(|| format!("cannot make the run folder {}", run_dir.display()))
}

/// Renames checkpoints beyond `step`, which belong to a continuation that this run abandons, so that neither
/// `--resume auto` nor pruning takes them for its own.
///
/// # Errors
/// A folder that cannot be listed or renamed.
pub fn set_aside_newer(run_dir: &Path, step: u64) -> anyhow::Result<()> {
    let folder = run_dir.join("checkpoints");
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(()) };
    for entry in entries {
        let name = entry.with_context(|| format!("cannot list {}", folder.display()))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("step-")?.parse::<u64>().ok());
        if number.is_some_and(|number| number > step) {
            let aside = free_name(&folder, &name.to_string_lossy());
            std::fs::rename(folder.join(&name), &aside)
                .with_context(|| format!("cannot rename {}", folder.join(&name).display()))?;
            tracing::warn!(
                "{} is newer than step {step}, which the run goes on from; kept as {}",
                folder.join(&name).display(),
                aside.display()
            );
        }
    }
    Ok(())
}

fn free_name(folder: &Path, name: &str) -> PathBuf {
    let plain = folder.join(format!("abandoned-{name}"));
    let numbered = (2..).map(|number| folder.join(format!("abandoned-{name}-{number}")));
    std::iter::once(plain.clone()).chain(numbered).find(|path| !path.exists()).unwrap_or(plain)
}

fn refuse_checkpoints(run_dir: &Path) -> anyhow::Result<()> {
    let found = checkpoint::find_latest(run_dir)?;
    match found.path.or_else(|| found.passed_over.into_iter().next().map(|(path, _)| path)) {
        None => Ok(()),
        Some(path) => Err(user(format!(
            "{} already holds {}; go on from it with --resume auto, or choose another run_dir",
            run_dir.display(),
            path.strip_prefix(run_dir).unwrap_or(&path).display()
        ))),
    }
}

fn latest(run_dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let found = checkpoint::find_latest(run_dir)?;
    for (path, reason) in found.passed_over {
        tracing::warn!("{} is not complete and is passed over: {reason}", path.display());
    }
    Ok(found.path)
}

fn named(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.exists() {
        return Err(user(format!("--resume {}: there is no such folder", path.display())));
    }
    if !path.join("checkpoints").is_dir() {
        return Ok(path.into());
    }
    latest(path)?.ok_or_else(|| user(format!("--resume {}: it has no complete checkpoint", path.display())))
}

/// Lists what differs from the checkpoint's settings; refuses what makes another model.
///
/// # Errors
/// Every setting of another model, with both values.
pub fn compare_settings(run: &Run, loaded: &Loaded) -> anyhow::Result<()> {
    let origin = loaded.path.display().to_string();
    let old = Run::from_toml(&loaded.state.config, &origin).or_user()?;
    let (other_model, others): (Vec<_>, Vec<_>) =
        changes::between(&old, run)?.into_iter().partition(changes::Change::changes_the_model);
    if !other_model.is_empty() {
        let list: Vec<_> = other_model.iter().map(ToString::to_string).collect();
        return Err(user(format!("{origin} is a checkpoint of another model: {}", list.join("; "))));
    }
    for change in others {
        tracing::info!("changed since the checkpoint: {change}");
    }
    Ok(())
}
