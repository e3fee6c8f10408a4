//! The transport over sockets: reqwest, with TLS by rustls and ring.
//!
//! Owns connections, time limits and credentials on the wire. Follows no redirect and uses no proxy:
//! both would hand the credentials to another host. Interprets no response.
//! Next to read: `config.rs` (where the settings come from), `transport.rs`.

use crate::config::{Auth, Config, ConfigError};
use crate::error::Reach;
use crate::secret::without_credentials;
use crate::transport::{Method, Request, Response, SendFuture, Transport, TransportError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

/// Header with the API version.
const VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";
/// The largest response that is read: an inventory of 4,000 disks has 2 MB, a page of 1,000 nodes 5.
const MAX_RESPONSE: usize = 64 << 20;

pub(crate) struct HttpTransport {
    client: reqwest::Client,
    /// Without a final slash, without `/v1`.
    base: String,
    auth: Auth,
}

impl HttpTransport {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(config)?)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(config.connect_limit)
            .timeout(config.total_limit)
            .user_agent(concat!("quarry/", env!("CARGO_PKG_VERSION")));
        let client = builder.build().map_err(|error| ConfigError::Tls(causes(&error)))?;
        Ok(Self { client, base: config.base().to_owned(), auth: config.auth.clone() })
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Patch => reqwest::Method::PATCH,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut builder = self.client.request(method, format!("{}{}", self.base, request.path));
        builder = builder.header("Accept", "application/json");
        if let Some(version) = request.version {
            builder = builder.header(VERSION_HEADER, version.to_string());
        }
        if let Auth::Basic { username, password } = &self.auth {
            builder = builder.basic_auth(username, Some(password.reveal()));
        }
        if let Some(body) = &request.body {
            builder = builder.header("Content-Type", "application/json").body(body.to_string());
        }
        let mut response = builder.send().await.map_err(|error| self.failure(&error))?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failure(&error))? {
            if body.len() + chunk.len() > MAX_RESPONSE {
                let message = format!("the response exceeds {} MiB", MAX_RESPONSE >> 20);
                return Err(TransportError { reach: Reach::Broken, message });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response { status, body })
    }

    fn failure(&self, error: &reqwest::Error) -> TransportError {
        let secrets = match &self.auth {
            Auth::None => Vec::new(),
            Auth::Basic { password, .. } => vec![password.reveal().to_owned()],
        };
        let reach = decide_reach(error);
        let what = match reach {
            Reach::Dns => "the host name cannot be resolved",
            Reach::ConnectionRefused => "the connection was refused",
            Reach::Timeout => "no response within the time limit",
            Reach::Tls => "TLS failed",
            Reach::Broken => "the connection broke",
        };
        let detail = without_credentials(&causes(error), &secrets);
        TransportError { reach, message: format!("{what} at {}: {detail}", self.base) }
    }
}

/// The transport of [`crate::Client::new`], for those that put something in between.
pub fn http_transport(config: &Config) -> Result<Arc<dyn Transport>, ConfigError> {
    Ok(Arc::new(HttpTransport::new(config)?))
}

impl Transport for HttpTransport {
    fn send(&self, request: Request) -> SendFuture<'_> {
        Box::pin(self.exchange(request))
    }
}

/// The innermost causes; reqwest's own text repeats the URL and names no cause.
fn causes(error: &dyn StdError) -> String {
    let mut texts = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    // Layers repeat the text of the one below.
    texts.dedup();
    if texts.is_empty() { error.to_string() } else { texts.split_off(texts.len() - 1).concat() }
}

fn decide_reach(error: &reqwest::Error) -> Reach {
    if error.is_timeout() {
        return Reach::Timeout;
    }
    if error.is_dns() {
        return Reach::Dns;
    }
    reach_of(error).unwrap_or(Reach::Broken)
}

/// The first cause that decides. An `io::Error` passes over the error inside it when asked for its
/// source, so that it is opened here.
fn reach_of(error: &(dyn StdError + 'static)) -> Option<Reach> {
    if error.is::<rustls::Error>() {
        return Some(Reach::Tls);
    }
    let inside = match error.downcast_ref::<io::Error>() {
        Some(io) if io.kind() == io::ErrorKind::ConnectionRefused => {
            return Some(Reach::ConnectionRefused);
        }
        Some(io) => io.get_ref().and_then(|inside| reach_of(inside)),
        None => None,
    };
    inside.or_else(|| reach_of(error.source()?))
}

fn tls(config: &Config) -> Result<ClientConfig, ConfigError> {
    let failed = |error: rustls::Error| ConfigError::Tls(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let builder = if config.insecure {
        let verifier = Arc::new(AnyCertificate(provider));
        builder.dangerous().with_custom_certificate_verifier(verifier)
    } else if !config.ca.is_empty() || !config.is_https() {
        let mut roots = RootCertStore::empty();
        for certificate in &config.ca {
            roots.add(certificate.clone()).map_err(failed)?;
        }
        builder.with_root_certificates(roots)
    } else {
        let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(failed)?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    };
    match &config.identity {
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(failed),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// `--ironic-insecure`: any certificate will do, but its owner must have the key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
