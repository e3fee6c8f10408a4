//! The listener: TLS with the data directory's CA, and the bearer token.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Widget, server, widget};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use kube::{Client, Config, ResourceExt};
use quarry_apiserver::{Kubeconfig, ServingIdentity};
use std::time::Duration;

async fn client(yaml: &str) -> Client {
    let config = kube::config::Kubeconfig::from_yaml(yaml).unwrap();
    let config = Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    config.try_into().unwrap()
}

#[tokio::test]
async fn only_clients_with_the_token_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let identity = ServingIdentity::load_or_create(directory.path()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let config = |token| {
        Kubeconfig { server: &url, ca_pem: identity.ca_pem(), token, namespace: "default" }
            .to_yaml()
    };
    let (good, bad) = (config("secret"), config("guess"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let api = server();
    let serving = tokio::spawn(async move {
        let shutdown = async { stopped.await.unwrap_or_default() };
        api.serve(listener, identity, "secret".into(), shutdown).await
    });

    let widgets: Api<Widget> = Api::default_namespaced(client(&good).await);
    let created = widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    let params = WatchParams::default().timeout(20);
    let mut events =
        widgets.watch(&params, &created.resource_version().unwrap()).await.unwrap().boxed();
    widgets.create(&PostParams::default(), &widget("b", "12")).await.unwrap();
    let event = tokio::time::timeout(Duration::from_secs(2), events.try_next())
        .await
        .expect("immediately")
        .unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(added)) if added.name_any() == "b"));

    let others: Api<Widget> = Api::default_namespaced(client(&bad).await);
    let refused = others.get("a").await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 401));

    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(2), serving)
        .await
        .expect("it stops with a watch open");
    ended.unwrap().unwrap();
}
