//! [`BucketOptions`]: which bucket of which service, from a URL.

use std::fmt;

use crate::model::error::Error;
use crate::model::options::Accepts::Text;
use crate::model::options::{Field, Options};
use crate::store::url::{StoreUrl, decoded};

/// Which bucket the locks are in, and where (feature `object-store`).
///
/// As a URL: `s3://bucket/prefix` or `az://container/prefix`. The credentials are those that the
/// environment gives, as the crate `object_store` reads them: `AWS_ACCESS_KEY_ID` and
/// `AWS_SECRET_ACCESS_KEY`, the role of a pod, a task or a machine; `AZURE_STORAGE_ACCOUNT_KEY`, a
/// managed identity, a workload identity.
///
/// ```
/// use leasehold::bucket::BucketOptions;
///
/// let options = BucketOptions::parse("s3://shop/locks?region=eu-west-1")?;
/// assert_eq!(options.bucket, "shop");
/// assert_eq!(options.prefix, "locks");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketOptions {
    /// What keeps the objects.
    pub service: ObjectService,
    /// The bucket, or the container of Azure.
    pub bucket: String,
    /// What the names of the objects begin with. Default: `leasehold`.
    pub prefix: String,
    /// The region of an S3 bucket. Default: `AWS_REGION`, or `us-east-1`.
    pub region: Option<String>,
    /// Where another service with the same protocol is: `https://host:port`. Default: that of
    /// Amazon or of Azure, or `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// The storage account of Azure. Default: `AZURE_STORAGE_ACCOUNT_NAME`.
    pub account: Option<String>,
    pub(super) set: Vec<(String, String)>,
}

/// What keeps the objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ObjectService {
    /// Amazon S3, or a service with its protocol and its conditional writes.
    S3,
    /// Azure Blob Storage.
    Azure,
}

const EXAMPLE: &str = "s3://bucket/prefix?region=name or az://container/prefix?account=name";
/// The longest prefix.
const LONGEST: usize = 500;

impl BucketOptions {
    #[rustfmt::skip]
    pub(crate) const OPTIONS: Options<Self> = Options { of: "object storage", fields: &[
        Field::new("region", "", Text("the name of a region", |o: &mut Self, name| { o.region = Some(name.to_owned()); Ok(()) }),
            "the region of the bucket; by default `AWS_REGION`, or us-east-1").only("s3"),
        Field::new("account", "", Text("the name of an account", |o: &mut Self, name| { o.account = Some(name.to_owned()); Ok(()) }),
            "the storage account; by default `AZURE_STORAGE_ACCOUNT_NAME`").only("az"),
        Field::new("endpoint", "", Text("http:// or https:// and a host", |o, at| { o.endpoint = Some(at.to_owned()); Ok(()) }),
            "where another service with the same protocol is"),
    ] };

    /// A bucket with the default prefix and configuration.
    #[must_use]
    pub fn new(service: ObjectService, bucket: impl Into<String>) -> Self {
        Self {
            service,
            bucket: bucket.into(),
            prefix: "leasehold".to_owned(),
            region: None,
            endpoint: None,
            account: None,
            set: Vec::new(),
        }
    }

    /// Parses a URL and checks it. Reads neither the environment nor a file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the part that is wrong.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let url = StoreUrl::parse(url, EXAMPLE)?;
        let service = match url.scheme() {
            "s3" => ObjectService::S3,
            "az" => ObjectService::Azure,
            _ => {
                return Err(Error::invalid(format!(
                    "this is no URL of a bucket; write {EXAMPLE}"
                )));
            }
        };
        if url.user()?.is_some() || url.password()?.is_some() {
            return Err(Error::invalid(format!(
                "the URL of a bucket has no user and no password: the credentials are in the environment; write {EXAMPLE}"
            )));
        }
        let mut options = Self::new(service, url.written_hosts());
        if !url.path().is_empty() {
            options.prefix = decoded(url.path())?;
        }
        Self::OPTIONS.read(url.scheme(), url.options(), &mut options)?;
        options.validate()?;
        Ok(options)
    }

    /// Sets what the environment would give, by the crate's own name for it: `aws_session_token`,
    /// `azure_storage_account_key`. For credentials that are not in the environment.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.push((name.into(), value.into()));
        self
    }

    /// Checks the names and the endpoint.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the part that is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !(1..=63).contains(&self.bucket.len()) || !self.bucket.bytes().all(letter) {
            return Err(Error::invalid(format!(
                "this is no name of a bucket or a container; write {EXAMPLE}"
            )));
        }
        let is_segment = |text: &str| !matches!(text, "" | "." | "..");
        let is_plain = self.prefix.chars().all(|c| c.is_ascii_graphic());
        if !is_plain || self.prefix.len() > LONGEST || !self.prefix.split('/').all(is_segment) {
            return Err(Error::invalid(format!(
                "the prefix of locks in a bucket is 1 to {LONGEST} visible characters of ASCII, with / between names; write {EXAMPLE}"
            )));
        }
        let is_url = |at: &String| {
            let host = at
                .strip_prefix("https://")
                .or_else(|| at.strip_prefix("http://"));
            host.is_some_and(|host| !host.is_empty() && !host.contains(['@', '?', '#']))
        };
        if self.endpoint.as_ref().is_some_and(|at| !is_url(at)) {
            return Err(Error::invalid(
                "the endpoint of an object storage is http:// or https:// and a host, and has no password; write endpoint=https://host:port",
            ));
        }
        Ok(())
    }
}

/// Without what was [set](BucketOptions::set), which may be a secret.
impl fmt::Debug for BucketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketOptions")
            .field("service", &self.service)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_bucket_prefix_and_place() {
        let parse = |url| BucketOptions::parse(url).unwrap();
        let options = parse("s3://shop");
        assert_eq!(options, BucketOptions::new(ObjectService::S3, "shop"));
        assert_eq!(options.prefix, "leasehold");
        let options = parse("s3://shop/a/b/?region=eu-west-1&endpoint=http://127.0.0.1:9000");
        assert_eq!(options.prefix, "a/b");
        assert_eq!(options.region.as_deref(), Some("eu-west-1"));
        assert_eq!(options.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        let options = parse("az://locks/a?account=shop");
        assert_eq!(options.service, ObjectService::Azure);
        assert_eq!(options.account.as_deref(), Some("shop"));
    }

    #[test]
    fn what_is_no_bucket_is_refused() {
        for url in [
            "s3://",
            "s3:///prefix",
            "s3://a,b",
            "s3://a:80",
            "s3://me:sesame@a",
            "s3://a/b//c",
            "s3://a/b%0Ac",
            "s3://a?account=b",
            "az://a?region=b",
            "s3://a?endpoint=host",
            "s3://a?endpoint=http://me:sesame%40host",
            "gs://a",
        ] {
            let error = BucketOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}: {error}");
            assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
        }
    }

    #[test]
    fn what_was_set_is_not_shown() {
        let options = BucketOptions::new(ObjectService::S3, "a").set("aws_secret", "sesame");
        assert!(!format!("{options:?}").contains("sesame"));
    }
}
