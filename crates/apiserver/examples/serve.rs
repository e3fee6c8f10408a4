//! Serves the embedded API with a CRD file, to try kubectl against it: `cargo run -p
//! quarry-apiserver --example serve -- DIR CRD.yaml [ADDRESS]`, then `KUBECONFIG=DIR/kubeconfig`.
#![expect(clippy::disallowed_methods, reason = "an example reads its own arguments' files")]

use quarry_apiserver::{Kubeconfig, Options, Server, ServingIdentity, load_or_create_token};
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let directory = PathBuf::from(args.next().ok_or("pass a data directory")?);
    let crds = std::fs::read_to_string(args.next().ok_or("pass a file with a CRD")?)?;
    let address = args.next().unwrap_or_else(|| "127.0.0.1:7420".into());
    let server = Server::open(&directory, Options::new(serde_saphyr::from_multiple(&crds)?))?;
    let identity = ServingIdentity::load_or_create(&directory)?;
    let token = load_or_create_token(&directory)?;
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let url = format!("https://{}", listener.local_addr()?);
    let config =
        Kubeconfig { server: &url, ca_pem: identity.ca_pem(), token: &token, namespace: "default" };
    config.write(&directory.join("kubeconfig"))?;
    println!("serving {url}; export KUBECONFIG={}", directory.join("kubeconfig").display());
    server
        .serve(listener, identity, token, async {
            tokio::signal::ctrl_c().await.unwrap_or_default()
        })
        .await?;
    Ok(())
}
