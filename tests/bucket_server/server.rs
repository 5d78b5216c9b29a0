//! One service with one bucket: an ordinary process on a free loopback port, ended by its id.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use leasehold::bucket::{BucketOptions, ObjectService};

use crate::canary::{self, CANARY};
use crate::process::{answers, free_port};

/// Where `install.sh` puts both.
const SERVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/servers");
const BUCKET: &str = "locks";
/// Azurite's own account, which its documentation has, and its key.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub(crate) struct Server {
    process: Child,
    options: BucketOptions,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub(crate) fn moto() -> Self {
        let mut python = Command::new(Path::new(SERVERS).join("moto/bin/python"));
        python.args(["-m", "moto.server", "-H", "127.0.0.1", "-p"]);
        let port = free_port();
        let process = started(python.arg(port.to_string()), port);
        let mut options = BucketOptions::new(ObjectService::S3, BUCKET);
        options.endpoint = Some(format!("http://127.0.0.1:{port}"));
        let options = (options.set("aws_access_key_id", "me")).set("aws_secret_access_key", CANARY);
        let made = request(port, &format!("PUT /{BUCKET}"));
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
        Self { process, options }
    }

    pub(crate) fn azurite() -> Self {
        let program = "azurite/node_modules/.bin/azurite-blob";
        let mut azurite = Command::new(Path::new(SERVERS).join(program));
        let port = free_port();
        azurite.args(["--blobPort", &port.to_string(), "--inMemoryPersistence"]);
        azurite.args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"]);
        let process = started(&mut azurite, port);
        let mut options = BucketOptions::new(ObjectService::Azure, BUCKET);
        options.account = Some(ACCOUNT.to_owned());
        let url = format!("http://127.0.0.1:{port}/{ACCOUNT}");
        let made = Command::new("python3")
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/bucket_server/container.py"
            ))
            .args([&url, ACCOUNT, KEY, BUCKET])
            .output()
            .expect("python3 is installed");
        assert!(made.status.success(), "{made:?}");
        options.endpoint = Some(url);
        Self {
            process,
            options: options.set("azure_storage_account_key", KEY),
        }
    }

    pub(crate) fn options(&self) -> BucketOptions {
        self.options.clone()
    }
}

fn started(command: &mut Command, port: u16) -> Child {
    canary::watch();
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = command.spawn();
    let mut process = spawned.expect("tests/bucket_server/install.sh has installed it");
    let is_there = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(
        answers(&mut process, is_there),
        "{command:?} does not start"
    );
    process
}

fn request(port: u16, what: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = "Host: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close";
    write!(stream, "{what} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
