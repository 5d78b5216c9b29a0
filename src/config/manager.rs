//! [`ManagerConfig`]: the configuration of one manager, which builds it.

use std::fmt;

use super::entry::{Section, located};
use super::field;
use super::handlers::Handlers;
use crate::connect::Plan;
use crate::manager::{LockManager, LockManagerBuilder};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::Label;
use crate::settings::Settings;

/// The configuration of one manager (feature `config`). `Debug` does not show the store's URL.
#[derive(Clone)]
pub struct ManagerConfig {
    store: String,
    settings: Settings,
    label: Option<Label>,
    handlers: Handlers,
    /// Its name; none for the manager at the top.
    name: Option<String>,
}

impl ManagerConfig {
    pub(super) fn of(name: Option<&str>, section: &Section) -> Result<Self, Error> {
        let draft = field::draft(section)?;
        let store = draft.store.ok_or_else(|| {
            Error::invalid(
                "store: no store is set; set store = \"redis://host:6379\", here or at the top",
            )
        })?;
        let plan =
            Plan::unchecked(&store, draft.settings).map_err(|why| at_fault(section, &why))?;
        let settings = plan.settings().clone();
        field::validate(section, &settings)?;
        draft.handlers.validate(section)?;
        Ok(Self {
            store,
            settings,
            label: draft.label,
            handlers: draft.handlers,
            name: name.map(str::to_owned),
        })
    }

    /// Its settings, with those that its store's URL gives.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The holder's name, if it is set.
    #[must_use]
    pub fn label(&self) -> Option<&Label> {
        self.label.as_ref()
    }

    /// Connects to its store and builds the manager.
    ///
    /// # Errors
    ///
    /// As [`LockManager::connect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: on Redis and PostgreSQL a dropped call leaves only an attempt to connect, which
    /// ends by itself.
    pub async fn connect(&self) -> Result<LockManager, Error> {
        self.builder().await?.build()
    }

    /// Connects to its store and returns a builder, for further configuration.
    ///
    /// # Errors
    ///
    /// As [`LockManager::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn builder(&self) -> Result<LockManagerBuilder, Error> {
        let builder = LockManager::builder_for_url(&self.store, self.settings.clone()).await?;
        let builder = self.handlers.add(self.name.as_deref(), builder)?;
        Ok(match &self.label {
            Some(label) => builder.label(label.clone()),
            None => builder,
        })
    }
}

impl fmt::Debug for ManagerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerConfig")
            .field("settings", &self.settings)
            .field("label", &self.label)
            .field("handlers", &self.handlers)
            .finish_non_exhaustive()
    }
}

/// The error of a whole section, reported at the position of its store.
fn at_fault(section: &Section, why: &Error) -> Error {
    match section.get("store") {
        Some(entry) if matches!(why.kind(), ErrorKind::Invalid | ErrorKind::Unsupported) => {
            located(&entry.origin, &entry.written, why.kind(), why)
        }
        _ => why.clone(),
    }
}
