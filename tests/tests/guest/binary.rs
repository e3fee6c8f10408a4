//! The binary under test inside the guests: it runs there, and reaches an API on the host.

use quarry_apiserver::{Kubeconfig, Options, Server, ServingIdentity, load_or_create_token};
use quarry_tests::guest::{Guest, Qemu, Uml};

#[tokio::test(flavor = "multi_thread")]
async fn binary_in_a_guest_reaches_the_api_on_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::in_memory(Options::new(quarry_api::crds()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let identity = ServingIdentity::load_or_create(dir.path()).unwrap();
    let token = load_or_create_token(dir.path()).unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    Kubeconfig { server: &url, ca_pem: identity.ca_pem(), token: &token, namespace: "default" }
        .write(&kubeconfig)
        .unwrap();
    tokio::spawn(async move {
        server.serve(listener, identity, token, std::future::pending::<()>()).await
    });

    let check_api = move |mut guest: Box<dyn std::ops::DerefMut<Target = Guest>>| {
        let (quarry, kubeconfig) = (guest.bring_quarry(), guest.join(&kubeconfig));
        let answer = guest.exec(&format!("{quarry} volumes --kubeconfig {kubeconfig}"));
        assert!(
            answer.success() && !answer.stdout.contains("refused"),
            "{}: {answer:?}",
            guest.name()
        );
        guest.api_at(None);
        let cut_off = guest.exec(&format!("{quarry} volumes --kubeconfig {kubeconfig}"));
        assert!(!cut_off.success(), "{}: {cut_off:?}", guest.name());
    };
    // Guest calls block; the API must keep running.
    tokio::task::spawn_blocking(move || {
        check_api(Box::new(Uml::boot("binary-uml", &[])));
        check_api(Box::new(Qemu::restore("binary-qemu")));
    })
    .await
    .unwrap();
}
