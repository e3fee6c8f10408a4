//! Which Kubernetes API a command uses, and its errors with a remedy each.
//!
//! Order: --kubeconfig, $KUBECONFIG, ~/.kube/config, the pod's service account; when none of them
//! exists, a standalone Quarry on this machine. A source that exists and is broken is an error, never skipped.

use crate::{cli::ConnectArgs, data_dir, output};
use anyhow::{Context, anyhow};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use quarry_view::Reader;
use std::{error::Error as _, future::Future, path::PathBuf, time::Duration};

/// A request that takes longer is an error.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// An API, and where its address is from.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    url: String,
    source: String,
}

enum ConfigSource {
    File(PathBuf, &'static str),
    Environment,
    Pod,
    Standalone(PathBuf),
}

/// No cluster is configured, or it does not answer: unlike a cluster that refuses a request.
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

const NONE: &str = "no cluster is configured; run `quarry up` for a standalone Quarry on this machine, or set KUBECONFIG (or --kubeconfig) to that of a cluster";

impl Cluster {
    pub async fn connect(args: &ConnectArgs) -> anyhow::Result<Self> {
        let source = find_config(args)?;
        let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
        let (config, origin) = match &source {
            ConfigSource::File(path, from) => {
                (read_file(path, &options).await?, format!("{} ({from})", path.display()))
            }
            ConfigSource::Environment => {
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
            ConfigSource::Pod => (
                Config::incluster().context("reading the pod's service account")?,
                "the pod's service account".to_owned(),
            ),
            ConfigSource::Standalone(path) => {
                output::note(&format!(
                    "using the standalone Quarry of {} (set KUBECONFIG for another cluster)",
                    path.display()
                ));
                (read_file(path, &options).await?, format!("{} (standalone)", path.display()))
            }
        };
        Self::new(config, origin)
    }

    fn new(mut config: Config, source: String) -> anyhow::Result<Self> {
        config.connect_timeout = Some(Duration::from_secs(5));
        // A proxy cannot reach the loopback address of this machine.
        let host =
            config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        {
            config.proxy_url = None;
        }
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client =
            Client::try_from(config).with_context(|| format!("connecting to {url} ({source})"))?;
        Ok(Cluster { client, url, source })
    }

    /// The embedded API of this process.
    pub fn in_process(client: Client) -> Self {
        Cluster { client, url: "the embedded API".into(), source: "this process".into() }
    }

    /// One request with a time limit; `attempt` says what was tried.
    pub async fn call<T>(
        &self,
        attempt: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> anyhow::Result<T> {
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.error(attempt, error)),
            Err(_) => Err(no_cluster(format!(
                "{attempt}: {} did not answer within {} s; check that it is healthy (address from {})",
                self.url,
                REQUEST_TIMEOUT.as_secs(),
                self.source
            ))),
        }
    }

    /// An error of the API, with its remedy.
    pub fn error(&self, attempt: &str, error: kube::Error) -> anyhow::Error {
        match &error {
            kube::Error::Api(status) => match status.code {
                401 => anyhow!(
                    "{attempt}: {} does not accept the credentials of {}; get a new kubeconfig (for a standalone Quarry the one in its data directory)",
                    self.url,
                    self.source
                ),
                403 => anyhow!(
                    "{attempt}: forbidden: {}; ask an administrator of the cluster for access",
                    status.message
                ),
                404 if is_missing_kind(&status.message) => {
                    anyhow!(
                        "{attempt}: {} does not have the CustomResourceDefinitions of Quarry; install them with `quarry crds apply`",
                        self.url
                    )
                }
                _ if status.message.is_empty() => {
                    anyhow!("{attempt}: {} answered {} {}", self.url, status.code, status.reason)
                }
                _ => anyhow!("{attempt}: {}", status.message),
            },
            kube::Error::Service(_) | kube::Error::HyperError(_) => no_cluster(format!(
                "{attempt}: cannot reach {} (from {}): {}; start a standalone Quarry with `quarry up`, or set KUBECONFIG to that of a running cluster",
                self.url,
                self.source,
                root_cause(&error)
            )),
            _ => anyhow::Error::new(error).context(attempt.to_owned()),
        }
    }
}

impl Reader for Cluster {
    type Error = anyhow::Error;

    fn client(&self) -> Client {
        self.client.clone()
    }

    fn call<T: Send>(
        &self,
        attempt: &str,
        request: impl Future<Output = kube::Result<T>> + Send,
    ) -> impl Future<Output = anyhow::Result<T>> + Send {
        Cluster::call(self, attempt, request)
    }
}

/// The response for a resource type that the API does not have, unlike that for a missing object.
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

fn find_config(args: &ConnectArgs) -> anyhow::Result<ConfigSource> {
    if let Some(path) = &args.kubeconfig {
        return Ok(ConfigSource::File(path.clone(), "--kubeconfig"));
    }
    if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
        return Ok(ConfigSource::Environment);
    }
    if let Some(path) =
        std::env::home_dir().map(|home| home.join(".kube/config")).filter(|path| path.exists())
    {
        return Ok(ConfigSource::File(path, "the default kubeconfig"));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Ok(ConfigSource::Pod);
    }
    let standalone = data_dir::default()
        .ok()
        .map(|dir| dir.join(data_dir::KUBECONFIG))
        .filter(|path| path.exists());
    standalone.map(ConfigSource::Standalone).ok_or_else(|| no_cluster(NONE))
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
                "kubeconfig {} is not readable by this user; run as its owner (sudo for a Quarry started as root)",
                path.display()
            )
        }
        KubeconfigError::CurrentContextNotSet => {
            anyhow!(
                "kubeconfig {name} selects no context; choose one with `kubectl config use-context NAME` or --context NAME"
            )
        }
        KubeconfigError::LoadContext(context) => anyhow!(
            "kubeconfig {name} has no context {context:?}; run `kubectl config get-contexts` to list them"
        ),
        // The parser quotes the file over several lines: the first names the problem.
        _ => anyhow!(
            "kubeconfig {name} is invalid: {}",
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
    async fn api_errors_name_a_remedy() {
        let cluster = cluster();
        let message =
            |code, message| cluster.error("listing volumes", api_error(code, message)).to_string();
        assert_eq!(
            message(404, "404 page not found"),
            "listing volumes: https://127.0.0.1:1 does not have the CustomResourceDefinitions of Quarry; install them with `quarry crds apply`"
        );
        assert!(message(401, "Unauthorized").contains("new kubeconfig"));
        assert!(message(403, "volumes is forbidden").contains("ask an administrator"));
        assert_eq!(
            message(422, "size must be greater than 0"),
            "listing volumes: size must be greater than 0"
        );
    }

    #[tokio::test]
    async fn an_unreachable_cluster_names_both_remedies() {
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
                && error.contains("set KUBECONFIG to that of a running cluster"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_invalid_kubeconfig_is_an_error_of_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, "root:x:0:0\nsecret:x:1:1\n").unwrap();
        let error = Cluster::connect(&ConnectArgs { kubeconfig: Some(path), context: None })
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("is invalid") && !error.contains("secret") && error.lines().count() == 1,
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let args = ConnectArgs { kubeconfig: Some("/nowhere/config".into()), context: None };
        let error = Cluster::connect(&args).await.err().unwrap().to_string();
        assert_eq!(
            error,
            "kubeconfig /nowhere/config does not exist; check the path in --kubeconfig or KUBECONFIG"
        );
    }
}
