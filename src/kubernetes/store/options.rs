//! [`KubernetesOptions`]: which API server and which namespace, from a URL.

use std::path::PathBuf;

use crate::model::error::Error;
use crate::model::options::Accepts::Text;
use crate::model::options::{Field, Options};
use crate::store::access::files;
use crate::store::url::StoreUrl;

/// Which API server and which namespace the Leases are in (feature `kubernetes`).
///
/// As a URL: `k8s://namespace` or `k8s:`. In a pod the API server and its credentials are those of
/// the pod's service account, unless `KUBECONFIG` is set. Outside they are in the kubeconfig.
///
/// ```
/// use leasehold::kubernetes::KubernetesOptions;
///
/// let options = KubernetesOptions::parse("k8s://shop?context=staging")?;
/// assert_eq!(options.namespace.as_deref(), Some("shop"));
/// assert_eq!(options.context.as_deref(), Some("staging"));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct KubernetesOptions {
    /// The namespace of the Leases. Default: that of the pod, or of the kubeconfig's context.
    pub namespace: Option<String>,
    /// The kubeconfig to read, also in a pod. Default: the service account in a pod; outside what
    /// `KUBECONFIG` names, or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. Default: its current one.
    pub context: Option<String>,
}

const EXAMPLE: &str = "k8s://namespace?context=name, or k8s: in a pod";
/// The longest name of a namespace.
const LONGEST: usize = 63;

impl KubernetesOptions {
    #[rustfmt::skip]
    pub(crate) const OPTIONS: Options<Self> = Options { of: "Kubernetes", fields: &[
        Field::new("kubeconfig", "", Text("the path of a file", |o, path| { o.kubeconfig = Some(files::path(path)?); Ok(()) }),
            "the kubeconfig to read, also in a pod"),
        Field::new("context", "", Text("the name of a context", |o, name| { o.context = Some(name.to_owned()); Ok(()) }),
            "the context of the kubeconfig; by default its current one"),
    ] };

    /// Parses a URL and checks it. Reads no file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the part that is wrong.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let refused = || Error::invalid(format!("this is no Kubernetes URL; write {EXAMPLE}"));
        let rest = url.strip_prefix("k8s:").ok_or_else(refused)?;
        // Without a namespace it is no URL with hosts.
        let written = match rest.strip_prefix("//") {
            Some(_) => url.to_owned(),
            None if rest.is_empty() || rest.starts_with('?') => format!("k8s://{rest}"),
            None => return Err(refused()),
        };
        let url = StoreUrl::parse(&written, EXAMPLE)?;
        if !url.path().is_empty() || url.user()?.is_some() || url.password()?.is_some() {
            return Err(Error::invalid(format!(
                "a Kubernetes URL has a namespace and nothing else before its options; write {EXAMPLE}"
            )));
        }
        let mut options = Self::default();
        options.namespace = match url.written_hosts() {
            "" => None,
            namespace => Some(namespace.to_owned()),
        };
        Self::OPTIONS.read(url.scheme(), url.options(), &mut options)?;
        options.validate()?;
        Ok(options)
    }

    /// Checks the namespace.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is no name of a namespace.
    pub fn validate(&self) -> Result<(), Error> {
        let Some(namespace) = &self.namespace else {
            return Ok(());
        };
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = namespace.as_bytes();
        let is_name = (1..=LONGEST).contains(&bytes.len())
            && bytes.iter().all(|byte| letter(*byte) || *byte == b'-')
            && letter(bytes[0])
            && letter(bytes[bytes.len() - 1]);
        if is_name {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "this is no name of a namespace; use 1 to {LONGEST} lowercase letters, digits and hyphens, as in {EXAMPLE}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_namespace_and_context() {
        let parse = |url| KubernetesOptions::parse(url).unwrap();
        assert_eq!(parse("k8s:"), KubernetesOptions::default());
        assert_eq!(parse("k8s://"), KubernetesOptions::default());
        assert_eq!(parse("k8s://shop").namespace.as_deref(), Some("shop"));
        let options = parse("k8s:?kubeconfig=/etc/kube&context=a");
        assert_eq!(options.kubeconfig, Some(PathBuf::from("/etc/kube")));
        assert_eq!(options.context.as_deref(), Some("a"));
        assert_eq!(options.namespace, None);
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        for url in [
            "k8s://Shop",
            "k8s://a.b",
            "k8s://a/b",
            "k8s://-a",
            "k8s://a:80",
            "k8s://a,b",
            "k8s://me@a",
            "k8s:shop",
            "k8s://a?nope=1",
            "redis://a",
        ] {
            let error = KubernetesOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}: {error}");
        }
    }
}
