//! A trained machine, read from its run folder or checkpoint.

use std::path::Path;

use atpm_model::Layer;
use atpm_model::ntm::Ntm;

use super::settings::Settings;
use crate::checkpoint;
use crate::run::exit::user;

/// The machine and the settings that it was trained with.
///
/// # Errors
/// A path without a complete checkpoint of a machine.
pub fn open(path: &Path) -> anyhow::Result<(Ntm, Settings)> {
    if !path.exists() {
        return Err(user(format!("--model {}: there is no such folder", path.display())));
    }
    let folder = match checkpoint::find_latest(path)?.path {
        Some(newest) => newest,
        None => path.to_owned(),
    };
    let loaded = checkpoint::load(&folder)?;
    let settings = Settings::from_toml(&loaded.state.config)?;
    let mut machine = Ntm::new(&settings.model, settings.seed)?;
    loaded.restore_parameters(&machine.parameters())?;
    machine.set_beta_scale(settings.beta_scale_at(loaded.state.step.max(1)));
    Ok((machine, settings))
}
