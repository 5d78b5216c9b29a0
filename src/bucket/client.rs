//! The client of a bucket, as the options say, with credentials that the environment gives.

use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::{ObjectStore, RetryConfig};

use super::options::{BucketOptions, ObjectService};
use super::service::Connector;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::http::{Pace, Thread};

pub(super) async fn open(
    options: BucketOptions,
    clock: Clock,
) -> Result<Arc<dyn ObjectStore>, Error> {
    options.validate()?;
    let thread = Arc::new(Thread::start("leasehold-s3").await?);
    let connector = Connector::new(thread, Pace::new(clock)).await?;
    match options.service {
        ObjectService::S3 => s3(options, connector),
        ObjectService::Azure => azure(options, connector),
    }
}

/// A write that is repeated would find itself, and be refused.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

fn s3(options: BucketOptions, connector: Connector) -> Result<Arc<dyn ObjectStore>, Error> {
    let mut builder = AmazonS3Builder::from_env();
    for (name, value) in &options.set {
        builder = builder.with_config(named(name)?, value);
    }
    if let Some(region) = options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = options.endpoint {
        let is_plain = endpoint.starts_with("http://");
        builder = (builder.with_allow_http(is_plain))
            .with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    let client = (builder.with_bucket_name(options.bucket))
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(no_retries())
        .with_http_connector(connector);
    Ok(Arc::new(client.build().map_err(unusable)?))
}

fn azure(options: BucketOptions, connector: Connector) -> Result<Arc<dyn ObjectStore>, Error> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (name, value) in &options.set {
        builder = builder.with_config(named(name)?, value);
    }
    if let Some(account) = options.account {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = options.endpoint {
        let is_plain = endpoint.starts_with("http://");
        builder = builder.with_allow_http(is_plain).with_endpoint(endpoint);
    }
    let client = (builder.with_container_name(options.bucket))
        .with_retry(no_retries())
        .with_http_connector(connector);
    Ok(Arc::new(client.build().map_err(unusable)?))
}

fn named<T: FromStr>(name: &str) -> Result<T, Error> {
    name.parse().map_err(|_| {
        Error::invalid(format!(
            "the crate object_store has no such configuration: name={name:?}; use a name of its AmazonS3ConfigKey or AzureConfigKey"
        ))
    })
}

/// No cause: it may show a value, which may be a secret.
fn unusable(error: object_store::Error) -> Error {
    let what = match error {
        object_store::Error::UnknownConfigurationKey { key, .. } => format!("name={key}"),
        _ => "check the variables AWS_... or AZURE_..., and account= and endpoint= of the URL"
            .to_owned(),
    };
    Error::invalid(format!(
        "the configuration of the object storage cannot be used: {what}"
    ))
}
