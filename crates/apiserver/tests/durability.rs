//! The durable store: a kill at any time loses no acknowledged write, and nothing unreadable is
//! overwritten. The child process of the kill test is this test binary, started again.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "these tests damage files and kill processes on purpose, and fail by panicking"
)]

mod common;

use common::{Widget, crds, widget};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use quarry_apiserver::{OpenError, Options, Server, dump};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD_DIR: &str = "QUARRY_TEST_STORE";
const FULL_DIR: &str = "QUARRY_TEST_FULL_STORE";

fn open(directory: &Path) -> Server {
    Server::open(directory, Options::new(crds())).unwrap()
}

fn widgets(client: Client) -> Api<Widget> {
    Api::default_namespaced(client)
}

/// Writes until it is killed; prints each acknowledged write.
#[tokio::test]
async fn child_writes_until_killed() {
    let Ok(directory) = std::env::var(CHILD_DIR) else { return };
    let server = open(Path::new(&directory));
    let api = widgets(server.client("default"));
    let start = server.version();
    println!("open {start}");
    for round in 0.. {
        let name = format!("w-{start}-{round}");
        let created = api.create(&PostParams::default(), &widget(&name, "12")).await.unwrap();
        println!("created {name} {}", created.resource_version().unwrap());
        let patch = Patch::Merge(json!({"spec": {"size": format!("{}", 100 + round % 900)}}));
        let changed = api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        println!("size {name} {} {}", changed.spec.size, changed.resource_version().unwrap());
        if round % 3 == 0 {
            api.delete(&name, &DeleteParams::default()).await.unwrap();
            println!("deleted {name} 0");
        }
    }
}

fn start_child(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child_writes_until_killed", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn every_acknowledged_write_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut newest = 0;
    for round in 0u64..6 {
        let mut child = start_child(directory.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // From the first write on, which takes a busy machine seconds to reach.
        let (writes, written) = std::sync::mpsc::channel::<()>();
        let killer = std::thread::spawn(move || {
            written.recv().unwrap();
            // Different delays, so that some kills happen during a commit.
            std::thread::sleep(Duration::from_millis(150 + 37 * round));
            child.kill().unwrap();
            child.wait().unwrap();
        });
        let mut sizes = std::collections::BTreeMap::new();
        let mut deleted = std::collections::BTreeSet::new();
        for line in lines.map_while(Result::ok) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [.., "created", name, version] => {
                    // Only the first is awaited.
                    writes.send(()).ok();
                    sizes.insert((*name).to_owned(), "12".to_owned());
                    newest = newest.max(version.parse::<u64>().unwrap());
                }
                ["size", name, size, version] => {
                    sizes.insert((*name).to_owned(), (*size).to_owned());
                    newest = newest.max(version.parse::<u64>().unwrap());
                }
                ["deleted", name, _] => {
                    deleted.insert((*name).to_owned());
                }
                _ => {}
            }
        }
        killer.join().unwrap();
        let dumped = dump(directory.path()).unwrap();
        assert!(!dumped.is_empty(), "a store that was not closed can be dumped");
        let server = open(directory.path());
        assert!(server.version() >= newest, "versions never go back");
        let api = widgets(server.client("default"));
        for (name, size) in sizes {
            let found = api.get_opt(&name).await.unwrap();
            match found {
                // The write after the last acknowledged one may have succeeded too.
                Some(found) => assert!(
                    found.spec.size == size || found.spec.size.parse::<u64>().unwrap() >= 100
                ),
                None => assert!(deleted.contains(&name) || may_be_deleted(&name), "{name} is lost"),
            }
            if deleted.contains(&name) {
                assert!(api.get_opt(&name).await.unwrap().is_none(), "{name} came back");
            }
        }
        server.close();
    }
    assert!(newest > 0, "the children wrote something");
}

/// Objects of every third round may be deleted without an acknowledgement.
fn may_be_deleted(name: &str) -> bool {
    name.rsplit('-')
        .next()
        .and_then(|round| round.parse::<u64>().ok())
        .is_some_and(|round| round.is_multiple_of(3))
}

/// Writes large objects until the store is full, then checks that earlier objects still exist.
#[tokio::test]
async fn child_fills_the_disk() {
    let Ok(directory) = std::env::var(FULL_DIR) else { return };
    let server = open(Path::new(&directory));
    let api = widgets(server.client("default"));
    let mut created = 0;
    let refused = loop {
        let mut big = widget(&format!("w{created}"), "12");
        big.metadata.annotations = Some([("big".to_owned(), "x".repeat(100_000))].into());
        match api.create(&PostParams::default(), &big).await {
            Ok(_) => created += 1,
            Err(why) => break why,
        }
    };
    println!("\ncreated {created}\nrefused {refused}");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), created, "reads go on");
    // A small object may still fit; then it must not be lost either.
    let small = api.create(&PostParams::default(), &widget("small", "12")).await.is_ok();
    println!("small {small}\ndone");
    // Without destructors, like a kill.
    std::process::exit(0);
}

#[tokio::test]
async fn full_disk_is_reported_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).close();
    // A file size limit replaces a full disk; it works without root.
    let script = format!(
        "trap '' XFSZ; ulimit -f 5000; exec {} child_fills_the_disk --nocapture",
        std::env::current_exe().unwrap().display()
    );
    let output =
        Command::new("sh").args(["-c", &script]).env(FULL_DIR, directory.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("done"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("is full; free space on it"), "{text}");
    let created = text
        .lines()
        .find_map(|line| line.strip_prefix("created "))
        .unwrap()
        .parse::<usize>()
        .unwrap();
    assert!(created > 3, "{text}");
    let api = widgets(open(directory.path()).client("default"));
    let small = usize::from(text.contains("small true"));
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), created + small);
    api.create(&PostParams::default(), &widget("more", "12")).await.unwrap();
}

#[tokio::test]
async fn store_is_used_by_one_process_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = start_child(directory.path());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("created"))).unwrap().unwrap();
    let refused = Server::open(directory.path(), Options::new(crds())).err().unwrap();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused:?}");
    assert!(refused.to_string().contains("in use by another process"), "{refused}");
    child.kill().unwrap();
    child.wait().unwrap();
    open(directory.path());
}

#[tokio::test]
async fn damaged_store_is_reported_and_left_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = open(directory.path());
        let api = widgets(server.client("default"));
        for index in 0..20 {
            api.create(&PostParams::default(), &widget(&format!("w{index}"), "12")).await.unwrap();
        }
        server.close();
        let refused = api.list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(refused, kube::Error::Api(status) if status.code == 503));
    }
    let path = directory.path().join("api.redb");
    let good = std::fs::read(&path).unwrap();
    let at = good.windows(4).position(|bytes| bytes == b"\"12\"").unwrap();
    let damages: [(&str, Vec<u8>); 4] = [
        ("empty", Vec::new()),
        ("garbage", b"this is not a database, it is a sentence".repeat(500)),
        ("cut short", good[..good.len() / 3].to_vec()),
        ("a flipped bit in a value", {
            let mut bad = good.clone();
            bad[at + 1] ^= 1;
            bad
        }),
    ];
    for (what, bad) in damages {
        std::fs::write(&path, &bad).unwrap();
        let refused = Server::open(directory.path(), Options::new(crds())).err();
        let refused = refused.unwrap_or_else(|| panic!("{what} was accepted"));
        assert!(matches!(refused, OpenError::Damaged { .. }), "{what}: {refused:?}");
        assert!(refused.to_string().contains("left unchanged"), "{refused}");
        if what != "a flipped bit in a value" {
            assert_eq!(std::fs::read(&path).unwrap(), bad, "{what} was overwritten");
        }
    }
    std::fs::write(&path, &good).unwrap();
    let api = widgets(open(directory.path()).client("default"));
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 20);
}

#[tokio::test]
async fn private_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(open(&data));
    let identity = quarry_apiserver::ServingIdentity::load_or_create(&data).unwrap();
    let token = quarry_apiserver::load_or_create_token(&data).unwrap();
    assert_eq!(token, quarry_apiserver::load_or_create_token(&data).unwrap(), "the token stays");
    let again = quarry_apiserver::ServingIdentity::load_or_create(&data).unwrap();
    assert_eq!(identity.ca_pem(), again.ca_pem(), "the authority stays");
    let config = quarry_apiserver::Kubeconfig {
        server: "https://127.0.0.1:1",
        ca_pem: identity.ca_pem(),
        token: &token,
        namespace: "default",
    };
    config.write(&data.join("kubeconfig")).unwrap();
    for name in ["api.redb", "ca.key", "token", "kubeconfig"] {
        let mode = std::fs::metadata(data.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn concurrent_writers_share_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let server = open(directory.path());
    let api = widgets(server.client("default"));
    let mut single = Vec::new();
    for index in 0..50 {
        let start = Instant::now();
        api.create(&PostParams::default(), &widget(&format!("a{index}"), "12")).await.unwrap();
        single.push(start.elapsed());
    }
    single.sort();
    let start = Instant::now();
    let writers = (0..100).map(|index| {
        let api = api.clone();
        async move {
            api.create(&PostParams::default(), &widget(&format!("b{index}"), "12")).await.unwrap()
        }
    });
    futures::future::join_all(writers).await;
    let together = start.elapsed();
    println!("one write: p50 {:?}, p95 {:?}; 100 at once: {together:?}", single[25], single[47]);
    assert!(
        together < single[25] * 50 + Duration::from_millis(200),
        "{together:?} for 100, {:?} for one",
        single[25]
    );
}
