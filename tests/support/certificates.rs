//! Certificates of a test's own, and a process that trusts one of their authorities.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// What `openssl ca` needs, which alone makes a certificate of the past.
const CA: &str = "[ca]\ndefault_ca=x\n[x]\ndatabase=index\nnew_certs_dir=.\nserial=serial\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n";

/// Two authorities, `ca` and `other`. Of the first a certificate for a server, one that has
/// `expired`, and one for a `client`, for which the second has made another, `stranger`. Deleted at
/// the end.
pub(crate) struct Certificates(PathBuf);

impl Certificates {
    /// `names`: of the server, as a certificate writes them.
    pub(crate) fn of(names: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("leasehold-tls-{}-{number}", std::process::id());
        let all = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&all.0).unwrap();
        std::fs::write(all.file("san"), format!("subjectAltName={names}")).unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        for name in ["ca", "other"] {
            all.openssl(&format!(
                "req -x509 {key} -subj /CN={name} -days 2 -keyout {name}.key -out {name}.pem"
            ));
        }
        all.openssl(&format!(
            "req {key} -subj /CN=server -keyout server.key -out server.csr"
        ));
        all.openssl(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san -out server.pem",
        );
        all.openssl(&format!(
            "req {key} -subj /CN=client -keyout client.key -out client.csr"
        ));
        for (name, ca) in [("client", "ca"), ("stranger", "other")] {
            all.openssl(&format!(
                "x509 -req -in client.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days 2 -extfile san -out {name}.pem"
            ));
        }
        for (name, text) in [("ca.cnf", CA), ("index", ""), ("serial", "01\n")] {
            std::fs::write(all.file(name), text).unwrap();
        }
        all.openssl(
            "ca -batch -config ca.cnf -cert ca.pem -keyfile ca.key -in server.csr -out expired.pem -extfile san -startdate 20200101000000Z -enddate 20200102000000Z -notext",
        );
        all
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    fn openssl(&self, arguments: &str) {
        let made = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(&self.0)
            .output();
        let made = made.expect("openssl is installed");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{said}");
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a process that trusts this authority says of a URL: the test `client` of this program,
/// which reads it from `variable`.
pub(crate) fn ask(client: &str, (variable, url): (&str, &str), trusted: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", client, "--nocapture"])
        .env(variable, url)
        .env("SSL_CERT_FILE", trusted)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
