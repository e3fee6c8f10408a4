//! Which Kubernetes API a command talks to, and what its errors mean to the person in front of it.
//!
//! Order: --kubeconfig, $KUBECONFIG, ~/.kube/config, the pod's service account; when none of them is
//! there, a standalone Quarry on this machine. A source that exists and is broken is an error, never skipped.

use crate::{cli::ConnectArgs, data_dir, output};
use anyhow::{Context, anyhow};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use std::{error::Error as _, future::Future, path::PathBuf, time::Duration};

/// A cluster that answers within this time or is reported as out of reach.
const PATIENCE: Duration = Duration::from_secs(15);

/// An API to ask, and where it was found.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    url: String,
    source: String,
}

enum Source {
    File(PathBuf, &'static str),
    Environment,
    Pod,
    Standalone(PathBuf),
}

/// Nothing names a cluster, or the one that is named does not answer: unlike a cluster that says no.
#[derive(Debug)]
pub struct NoCluster(String);

impl std::fmt::Display for NoCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoCluster {}

fn no_cluster(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(NoCluster(text.into()))
}

const NONE: &str = "no cluster is configured: run `quarry up` for a standalone Quarry on this machine, or point KUBECONFIG (or --kubeconfig) at a cluster";

impl Cluster {
    pub async fn connect(args: &ConnectArgs) -> anyhow::Result<Self> {
        let source = find_source(args)?;
        let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
        let (config, said) = match &source {
            Source::File(path, from) => {
                (read_file(path, &options).await?, format!("{} ({from})", path.display()))
            }
            Source::Environment => {
                let name = std::env::var("KUBECONFIG").unwrap_or_default();
                let merged = Kubeconfig::from_env()
                    .map_err(|error| broken(&name, error))?
                    .ok_or_else(|| no_cluster(NONE))?;
                (
                    Config::from_custom_kubeconfig(merged, &options)
                        .await
                        .map_err(|error| broken(&name, error))?,
                    "KUBECONFIG".to_owned(),
                )
            }
            Source::Pod => (
                Config::incluster().context("reading the pod's service account")?,
                "the pod's service account".to_owned(),
            ),
            Source::Standalone(path) => {
                output::note(&format!(
                    "using the standalone Quarry of {} (set KUBECONFIG for another cluster)",
                    path.display()
                ));
                (read_file(path, &options).await?, format!("{} (standalone)", path.display()))
            }
        };
        Self::new(config, said)
    }

    fn new(mut config: Config, source: String) -> anyhow::Result<Self> {
        config.connect_timeout = Some(Duration::from_secs(5));
        // A proxy for the outside world is of no use for this machine.
        let host =
            config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        {
            config.proxy_url = None;
        }
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config)
            .with_context(|| format!("preparing the connection to {url} ({source})"))?;
        Ok(Cluster { client, url, source })
    }

    /// The API of this very process.
    pub fn in_process(client: Client) -> Self {
        Cluster { client, url: "the embedded API".into(), source: "this process".into() }
    }

    /// One request, within a time limit, its error told in words.
    pub async fn call<T>(
        &self,
        attempt: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> anyhow::Result<T> {
        match tokio::time::timeout(PATIENCE, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.error(attempt, error)),
            Err(_) => Err(no_cluster(format!(
                "{attempt}: {} did not answer within {} s; check that it is healthy (its address is from {})",
                self.url,
                PATIENCE.as_secs(),
                self.source
            ))),
        }
    }

    /// What an error of the API means, and what to do about it.
    pub fn error(&self, attempt: &str, error: kube::Error) -> anyhow::Error {
        match &error {
            kube::Error::Api(status) => match status.code {
                401 => anyhow!(
                    "{attempt}: {} does not accept the credentials of {}; get a fresh kubeconfig (of a standalone Quarry: the one in its data directory)",
                    self.url,
                    self.source
                ),
                403 => anyhow!(
                    "{attempt}: not allowed: {}; ask an administrator of the cluster for the right",
                    status.message
                ),
                404 if is_missing_kind(&status.message) => {
                    anyhow!(
                        "{attempt}: {} does not have Quarry's kinds; install them with `quarry crds apply`",
                        self.url
                    )
                }
                _ if status.message.is_empty() => {
                    anyhow!("{attempt}: {} answered {} {}", self.url, status.code, status.reason)
                }
                _ => anyhow!("{attempt}: {}", status.message),
            },
            kube::Error::Service(_) | kube::Error::HyperError(_) => no_cluster(format!(
                "{attempt}: cannot reach {} (from {}): {}; start a standalone Quarry with `quarry up`, or point KUBECONFIG at a cluster that runs",
                self.url,
                self.source,
                root_cause(&error)
            )),
            _ => anyhow::Error::new(error).context(attempt.to_owned()),
        }
    }
}

/// The answer of an API server for a resource type that it does not have, unlike that for a missing object.
fn is_missing_kind(message: &str) -> bool {
    message.contains("page not found") || message.contains("could not find the requested resource")
}

fn root_cause(error: &kube::Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}

fn find_source(args: &ConnectArgs) -> anyhow::Result<Source> {
    if let Some(path) = &args.kubeconfig {
        return Ok(Source::File(path.clone(), "--kubeconfig"));
    }
    if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
        return Ok(Source::Environment);
    }
    if let Some(path) =
        std::env::home_dir().map(|home| home.join(".kube/config")).filter(|path| path.exists())
    {
        return Ok(Source::File(path, "the default kubeconfig"));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Ok(Source::Pod);
    }
    let standalone = data_dir::default()
        .ok()
        .map(|dir| dir.join(data_dir::KUBECONFIG))
        .filter(|path| path.exists());
    standalone.map(Source::Standalone).ok_or_else(|| no_cluster(NONE))
}

async fn read_file(path: &std::path::Path, options: &KubeConfigOptions) -> anyhow::Result<Config> {
    let name = path.display().to_string();
    let file = Kubeconfig::read_from(path).map_err(|error| broken(&name, error))?;
    Config::from_custom_kubeconfig(file, options).await.map_err(|error| broken(&name, error))
}

fn broken(name: &str, error: KubeconfigError) -> anyhow::Error {
    match &error {
        KubeconfigError::ReadConfig(io, path) if io.kind() == std::io::ErrorKind::NotFound => {
            anyhow!(
                "kubeconfig {} does not exist; check the path in --kubeconfig or KUBECONFIG",
                path.display()
            )
        }
        KubeconfigError::ReadConfig(io, path)
            if io.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            anyhow!(
                "kubeconfig {} may not be read by this user; run as its owner (sudo for a Quarry started as root)",
                path.display()
            )
        }
        KubeconfigError::CurrentContextNotSet => {
            anyhow!(
                "kubeconfig {name} selects no context; choose one with `kubectl config use-context NAME` or --context NAME"
            )
        }
        KubeconfigError::LoadContext(context) => anyhow!(
            "kubeconfig {name} has no context {context:?}; `kubectl config get-contexts` lists them"
        ),
        // The parser quotes the file over several lines: the first says what is wrong.
        _ => anyhow!(
            "kubeconfig {name} cannot be used: {}",
            error.to_string().lines().next().unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn cluster() -> Cluster {
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        Cluster { client, url: "https://127.0.0.1:1".into(), source: "KUBECONFIG".into() }
    }

    fn api_error(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure(message, "Reason").with_code(code)))
    }

    #[tokio::test]
    async fn every_error_of_the_api_names_a_remedy() {
        let cluster = cluster();
        let said =
            |code, message| cluster.error("listing volumes", api_error(code, message)).to_string();
        assert_eq!(
            said(404, "404 page not found"),
            "listing volumes: https://127.0.0.1:1 does not have Quarry's kinds; install them with `quarry crds apply`"
        );
        assert!(said(401, "Unauthorized").contains("fresh kubeconfig"));
        assert!(said(403, "volumes is forbidden").contains("ask an administrator"));
        assert_eq!(
            said(422, "size must be greater than 0"),
            "listing volumes: size must be greater than 0"
        );
    }

    #[tokio::test]
    async fn an_unreachable_cluster_is_told_with_both_ways_out() {
        let cluster = cluster();
        let api: kube::Api<quarry_api::Volume> = kube::Api::all(cluster.client.clone());
        let error = cluster
            .call("listing volumes", api.list(&Default::default()))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(
                "listing volumes: cannot reach https://127.0.0.1:1 (from KUBECONFIG): "
            ),
            "{error}"
        );
        assert!(
            error.contains("refused")
                && error.contains("`quarry up`")
                && error.contains("KUBECONFIG at a cluster"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_file_that_is_no_kubeconfig_is_told_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, "root:x:0:0\nsecret:x:1:1\n").unwrap();
        let error = Cluster::connect(&ConnectArgs { kubeconfig: Some(path), context: None })
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("cannot be used")
                && !error.contains("secret")
                && error.lines().count() == 1,
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let args = ConnectArgs { kubeconfig: Some("/nowhere/config".into()), context: None };
        let error = Cluster::connect(&args).await.err().unwrap().to_string();
        assert_eq!(
            error,
            "kubeconfig /nowhere/config does not exist; check the path in --kubeconfig or KUBECONFIG"
        );
    }
}
