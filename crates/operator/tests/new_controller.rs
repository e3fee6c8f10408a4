//! A controller that only a test registers: one `impl Controller` and one `.with::<C>()` make it reconcile, and show in
//! metrics and the CRD check. `--controllers`: `crates/quarry/src/cli/tests.rs`.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod echo;

use echo::{Echo, EchoController, EchoSpec};
use jiff::SignedDuration;
use kube::{Api, CustomResourceExt, api::PostParams};
use quarry_api::{crds, names};
use quarry_apiserver::{Options, Server};
use quarry_operator::{OperatorOptions, Registry, preflight};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

fn server(with_crd: bool) -> Server {
    let mut kinds = crds::crds();
    kinds.extend(with_crd.then(Echo::crd));
    Server::in_memory(Options::new(kinds))
}

#[tokio::test]
async fn a_registered_controller_reconciles_and_is_listed() {
    let registry = Registry::standard().with::<EchoController>();
    assert_eq!(registry.groups().last(), Some(&"echo"), "--controllers lists the groups");
    let server = server(true);
    let client = server.client(names::DEFAULT_NAMESPACE);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Every CRD is installed: none of the groups is skipped.
    let options = OperatorOptions {
        namespace: names::DEFAULT_NAMESPACE.into(),
        registry: registry.select(&["echo"]),
        election_identity: None,
        agent_daemon_set: None,
        job_retention: SignedDuration::from_hours(1),
        hosts: None,
        check_crds: true,
    };
    let stop = CancellationToken::new();
    let running =
        tokio::spawn(quarry_operator::run(client.clone(), options, Some(listener), stop.clone()));
    let api: Api<Echo> = Api::all(client.clone());
    for (name, message) in [("a", "hello"), ("b", "")] {
        let object = Echo::new(name, EchoSpec { message: message.into() });
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let answer = async {
        loop {
            let found = api.get("a").await.unwrap().status.and_then(|status| status.answer);
            if let Some(answer) = found {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), answer).await.unwrap(), "HELLO");
    let refused = async {
        let events: Api<k8s_openapi::api::core::v1::Event> = Api::all(client.clone());
        loop {
            let all = events.list(&Default::default()).await.unwrap().items;
            if let Some(event) =
                all.into_iter().find(|one| one.reason.as_deref() == Some("PlanRefused"))
            {
                return event;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap();
    assert_eq!(refused.involved_object.name.as_deref(), Some("b"));
    assert!(refused.message.unwrap().contains("an empty answer"));
    assert!(api.get("b").await.unwrap().status.is_none(), "nothing of a refused plan is applied");
    let text = metrics(address).await;
    assert!(
        text.contains("quarry_reconciles_total{controller=\"echo\",outcome=\"done\"}"),
        "{text}"
    );
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_registered_controller_is_part_of_the_crd_check() {
    let client = server(false).client(names::DEFAULT_NAMESPACE);
    let registry = Registry::standard().with::<EchoController>();
    let missing = preflight::missing_of_groups(&client, &registry.select(&["echo"])).await.unwrap();
    let [("echo", what)] = missing.as_slice() else { panic!("{missing:?}") };
    assert!(what[0].contains("echoes.test.quarry.dev"), "{what:?}");
}

async fn metrics(address: std::net::SocketAddr) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}
