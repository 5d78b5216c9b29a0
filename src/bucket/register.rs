//! [`BucketRegister`]: records in objects, replaced by their ETag.

use std::fmt;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    Error as ObjectError, GetOptions, ObjectStore, PutMode, PutPayload, UpdateVersion,
};

use super::{answer, text};
use crate::ErrorKind;
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{Hint, Listed, Record, Register, Swapped};

/// An object that is longer is no record.
const LONGEST: u64 = 4_096;
/// How many objects of a list are loaded beside each other.
const BESIDE: usize = 64;
/// How many objects there may be under the prefix for a list.
const LISTED: usize = 100_000;

/// Records in the objects under one prefix: the register of a
/// [`BucketStore`](super::BucketStore).
#[derive(Clone)]
pub struct BucketRegister {
    pub(super) objects: Arc<dyn ObjectStore>,
    prefix: String,
}

/// Without the client, whose own shows keys of Azure.
impl fmt::Debug for BucketRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketRegister")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The version of an object: its ETag, and what else the service compares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectVersion(UpdateVersion);

impl BucketRegister {
    /// `Invalid` for a prefix that is no path.
    pub(super) fn over(objects: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, Error> {
        let parsed = Path::parse(prefix).ok();
        let prefix = parsed.filter(|path| !path.as_ref().is_empty()).ok_or_else(|| {
            Error::invalid(format!(
                "the prefix of locks in a bucket is no path: prefix={prefix:?}; use names with / between them, as in a/b"
            ))
        })?;
        Ok(Self {
            objects,
            prefix: prefix.to_string(),
        })
    }

    /// The object with this name under the prefix.
    pub(super) fn named(&self, name: &str) -> Result<Path, Error> {
        let path = Path::parse(format!("{}/{name}", self.prefix));
        path.map_err(|error| Error::invalid("this is no name of an object").because(error))
    }

    /// No key has a comma.
    fn path(&self, key: &Key) -> Result<Path, Error> {
        self.named(&key.as_str().replace('/', ","))
    }

    /// The key of an object; `None` if it is not one of ours.
    fn key_of(&self, path: &Path) -> Option<Key> {
        let name = path.as_ref().strip_prefix(&self.prefix)?;
        let name = name.strip_prefix('/')?;
        let is_ours = !name.contains('/');
        is_ours.then(|| Key::parse(&name.replace(',', "/")).ok())?
    }

    pub(super) async fn get(&self, path: &Path) -> Result<Option<(String, ObjectVersion)>, Error> {
        let failed = |error| answer::error(path, false, error);
        let got = match self.objects.get_opts(path, GetOptions::default()).await {
            Ok(got) => got,
            Err(ObjectError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if got.meta.size > LONGEST {
            return Err(no_record(path));
        }
        let (e_tag, version) = (got.meta.e_tag.clone(), got.meta.version.clone());
        let bytes = got.bytes().await.map_err(failed)?;
        let text = String::from_utf8(bytes.into()).map_err(|_| no_record(path))?;
        Ok(Some((
            text,
            ObjectVersion(UpdateVersion { e_tag, version }),
        )))
    }

    /// Replaces an object whose version is `expected`; `None` if there is none.
    pub(super) async fn put(
        &self,
        path: &Path,
        expected: Option<&ObjectVersion>,
        text: String,
    ) -> Result<Swapped<ObjectVersion>, Error> {
        let mode = match expected {
            Some(version) => PutMode::Update(version.0.clone()),
            None => PutMode::Create,
        };
        let payload = PutPayload::from(text.into_bytes());
        match self.objects.put_opts(path, payload, mode.into()).await {
            Ok(put) => Ok(Swapped::Swapped(ObjectVersion(UpdateVersion {
                e_tag: put.e_tag,
                version: put.version,
            }))),
            Err(ObjectError::AlreadyExists { .. } | ObjectError::Precondition { .. }) => {
                Ok(Swapped::Moved)
            }
            // Somebody deleted it.
            Err(ObjectError::NotFound { .. }) if expected.is_some() => Ok(Swapped::Moved),
            Err(error) => Err(answer::error(path, true, error)),
        }
    }

    async fn listed(&self, key: Key) -> Result<Option<Listed<ObjectVersion>>, Error> {
        match self.load(&key).await {
            Ok(loaded) => Ok(loaded.map(|(record, version)| Listed {
                key,
                record,
                version,
            })),
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Register for BucketRegister {
    type Version = ObjectVersion;

    fn name(&self) -> &'static str {
        "bucket"
    }

    async fn load(&self, key: &Key) -> Result<Option<(Record, ObjectVersion)>, Error> {
        let path = self.path(key)?;
        let Some((text, version)) = self.get(&path).await? else {
            return Ok(None);
        };
        let record = text::read(&text).ok_or_else(|| no_record(&path))?;
        Ok(Some((record, version)))
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&ObjectVersion>,
        record: &Record,
    ) -> Result<Swapped<ObjectVersion>, Error> {
        let path = self.path(key)?;
        self.put(&path, expected, text::written(record)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed<ObjectVersion>>, Error> {
        let folder = Path::parse(&self.prefix).unwrap_or_default();
        let names = self.objects.list(Some(&folder)).take(LISTED + 1);
        let names: Result<Vec<_>, _> = names.try_collect().await;
        let names = names.map_err(|error| answer::error(&folder, false, error))?;
        if names.len() > LISTED {
            return Err(Error::corrupt(format!(
                "there are more than {LISTED} objects under the prefix of the locks: prefix={folder}; use another prefix"
            )));
        }
        let keys = names
            .iter()
            .filter_map(|object| self.key_of(&object.location));
        let keys = keys.filter(|key| key.as_str().starts_with(prefix));
        let loads: Vec<_> = keys.map(|key| self.listed(key)).collect();
        let loaded = stream::iter(loads).buffer_unordered(BESIDE);
        let listed: Vec<Option<_>> = loaded.try_collect().await?;
        Ok(listed.into_iter().flatten().collect())
    }

    /// An object storage notifies nobody.
    fn watches(&self) -> bool {
        false
    }

    async fn watch(&self, _: &Key) -> Result<Hint, Error> {
        Ok(Hint::never())
    }

    fn watched(&self, _: &Key) -> Option<(Record, ObjectVersion, Stamp)> {
        None
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn no_record(path: &Path) -> Error {
    Error::corrupt(format!(
        "an object under the prefix of the locks is no record of a lock: path={path}; delete it, or use another prefix"
    ))
}
