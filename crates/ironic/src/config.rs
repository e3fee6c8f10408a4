//! Settings of the client: parsed from arguments and files, refused with the argument's name.
//!
//! `Settings` name files, `Config` is their content. Never keeps a file's content beyond that, and never
//! prints a credential. Nothing is ignored silently: settings without effect are refused.
//! Next to read: `reload.rs` (files that change), `http.rs` (what the settings do).

use crate::files;
use crate::secret::{Secret, without_userinfo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time to establish a connection.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Time for a request as a whole. Ironic waits some seconds for a node's lock itself.
pub const TOTAL_LIMIT: Duration = Duration::from_secs(30);

/// How to reach Ironic, as given on the command line. Files are read by [`Settings::load`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// `--ironic-url`: `https://HOST:6385`, with or without `/v1`.
    pub url: String,
    /// `--ironic-auth`: a directory with the files `username` and `password`, or a file with
    /// `USERNAME:PASSWORD`. None: Ironic runs without authentication.
    pub auth: Option<PathBuf>,
    /// `--ironic-ca`: PEM. None: the system's certificates.
    pub ca: Option<PathBuf>,
    /// `--ironic-client-cert`: PEM, with intermediate certificates.
    pub client_cert: Option<PathBuf>,
    /// `--ironic-client-key`: PEM.
    pub client_key: Option<PathBuf>,
    /// `--ironic-insecure`: accept any certificate of the server.
    pub insecure: bool,
}

/// Everything that the client needs, validated.
#[derive(Debug, Clone)]
pub struct Config {
    base: String,
    pub auth: Auth,
    /// Empty: the system's certificates.
    pub ca: Vec<CertificateDer<'static>>,
    pub identity: Option<ClientIdentity>,
    pub insecure: bool,
    pub connect_limit: Duration,
    pub total_limit: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    None,
    Basic { username: String, password: Secret },
}

/// The client's certificate with its key. Debug hides the key.
pub struct ClientIdentity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Clone for ClientIdentity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client certificate with {} parts", self.chain.len())
    }
}

/// Settings that cannot be used: the argument, the file, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("--ironic-url {url:?} {problem}; write it as https://HOST:6385")]
    Url { url: String, problem: String },
    #[error("{argument}: {} cannot be read: {cause}; {remedy}", path.display())]
    Unreadable { argument: &'static str, path: PathBuf, cause: String, remedy: &'static str },
    #[error("{argument}: {} {problem}; {remedy}", path.display())]
    Content { argument: &'static str, path: PathBuf, problem: String, remedy: &'static str },
    #[error("{0}")]
    Combination(&'static str),
    #[error(
        "the TLS settings for Ironic cannot be used: {0}; check --ironic-ca, --ironic-client-cert and --ironic-client-key"
    )]
    Tls(String),
}

impl Config {
    /// Without credentials, with the system's certificates and the default time limits.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            base: parse_url(url)?,
            auth: Auth::None,
            ca: Vec::new(),
            identity: None,
            insecure: false,
            connect_limit: CONNECT_LIMIT,
            total_limit: TOTAL_LIMIT,
        })
    }

    /// The URL without `/v1` and without a final slash.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn is_https(&self) -> bool {
        self.base.starts_with("https://")
    }
}

impl Settings {
    /// Reads and validates everything.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut config = Config::new(&self.url)?;
        self.check_combination(&config)?;
        config.insecure = self.insecure;
        if let Some(path) = &self.auth {
            config.auth = load_auth(path)?;
        }
        if let Some(path) = &self.ca {
            config.ca = certificates("--ironic-ca", path)?;
        }
        if let (Some(cert), Some(key)) = (&self.client_cert, &self.client_key) {
            let chain = certificates("--ironic-client-cert", cert)?;
            config.identity = Some(ClientIdentity { chain, key: private_key(key)? });
        }
        Ok(config)
    }

    fn check_combination(&self, config: &Config) -> Result<(), ConfigError> {
        let tls = self.ca.is_some() || self.client_cert.is_some() || self.insecure;
        let problem = if self.client_cert.is_some() != self.client_key.is_some() {
            "--ironic-client-cert and --ironic-client-key need each other; set both or neither"
        } else if self.ca.is_some() && self.insecure {
            "--ironic-insecure would make --ironic-ca ineffective; remove one of them"
        } else if tls && !config.is_https() {
            "--ironic-url is not https://, so that --ironic-ca, --ironic-client-cert and \
             --ironic-insecure have no effect; change the URL or remove them"
        } else {
            return Ok(());
        };
        Err(ConfigError::Combination(problem))
    }

    /// The files whose content matters.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        if let Some(path) = &self.auth {
            if files::is_directory(path).unwrap_or(false) {
                found.extend([path.join("username"), path.join("password")]);
            } else {
                found.push(path.clone());
            }
        }
        found
            .extend([&self.ca, &self.client_cert, &self.client_key].into_iter().flatten().cloned());
        found
    }
}

fn parse_url(text: &str) -> Result<String, ConfigError> {
    let problem = |problem: &str| ConfigError::Url {
        url: without_userinfo(text),
        problem: problem.to_owned(),
    };
    let url = reqwest::Url::parse(text.trim())
        .map_err(|error| problem(&format!("is not a URL ({error})")))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(problem("has another scheme than http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(problem(
            "contains credentials: put them into a file and name it with --ironic-auth",
        ));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(problem("has no host"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(problem("has a query or a fragment"));
    }
    let base = url.as_str().trim_end_matches('/');
    Ok(base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/').to_owned())
}

const AUTH: &str = "--ironic-auth";
const AUTH_REMEDY: &str =
    "provide a directory with the files username and password, or a file with USERNAME:PASSWORD";

fn load_auth(path: &Path) -> Result<Auth, ConfigError> {
    let unreadable =
        |path: &Path, cause: std::io::Error| unreadable(AUTH, path, &cause, AUTH_REMEDY);
    let (username, password, password_file) =
        if files::is_directory(path).map_err(|cause| unreadable(path, cause))? {
            let file = path.join("password");
            let username = credential(&path.join("username"))?;
            (username, credential(&file)?, file)
        } else {
            let text = credential(path)?;
            let Some((username, password)) = text.split_once(':') else {
                return Err(auth_content(path, "has no colon between user name and password"));
            };
            (username.to_owned(), password.to_owned(), path.to_owned())
        };
    if username.is_empty() || username.contains(':') {
        return Err(auth_content(path, "has an empty user name, or one with a colon"));
    }
    if password.is_empty() {
        return Err(auth_content(&password_file, "has an empty password"));
    }
    if ["$2y$", "$2b$", "$2a$"].iter().any(|hash| password.starts_with(hash)) {
        return Err(auth_content(
            &password_file,
            "contains the hash of a password, not a password",
        ));
    }
    Ok(Auth::Basic { username, password: Secret::new(password) })
}

/// Content of a file without the final line break that editors add.
fn credential(path: &Path) -> Result<String, ConfigError> {
    let bytes = files::read(path).map_err(|cause| unreadable(AUTH, path, &cause, AUTH_REMEDY))?;
    let text = String::from_utf8(bytes).map_err(|_| auth_content(path, "is not UTF-8"))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.contains(|char: char| char.is_control()) {
        return Err(auth_content(path, "has more than one line, or control characters"));
    }
    Ok(text.to_owned())
}

fn auth_content(path: &Path, problem: &str) -> ConfigError {
    content(AUTH, path, problem.to_owned(), AUTH_REMEDY)
}

fn certificates(
    argument: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    const REMEDY: &str = "provide certificates in PEM form";
    let bytes = files::read(path).map_err(|cause| unreadable(argument, path, &cause, REMEDY))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(content(argument, path, "contains no certificate".to_owned(), REMEDY))
        }
        Ok(found) => Ok(found),
        Err(cause) => Err(content(argument, path, format!("is not valid PEM ({cause})"), REMEDY)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    const ARGUMENT: &str = "--ironic-client-key";
    const REMEDY: &str = "provide an unencrypted private key in PEM form";
    let bytes = files::read(path).map_err(|cause| unreadable(ARGUMENT, path, &cause, REMEDY))?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        content(ARGUMENT, path, "contains no private key that can be used".to_owned(), REMEDY)
    })
}

fn unreadable(
    argument: &'static str,
    path: &Path,
    cause: &std::io::Error,
    remedy: &'static str,
) -> ConfigError {
    ConfigError::Unreadable { argument, path: path.to_owned(), cause: cause.to_string(), remedy }
}

fn content(
    argument: &'static str,
    path: &Path,
    problem: String,
    remedy: &'static str,
) -> ConfigError {
    ConfigError::Content { argument, path: path.to_owned(), problem, remedy }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
