//! Owns access from outside the process: the server certificate (signed by a CA created once in the
//! data directory), the token, the kubeconfig that contains both, and the listener. The certificate
//! names only loopback addresses, so only local clients can verify it.

use crate::files::{self, FileError};
use crate::router::{ApiBody, failure};
use crate::server::Server;
use crate::status::ApiError;
use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Time limit for the TLS handshake of a client.
const HANDSHAKE: Duration = Duration::from_secs(10);
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Files(#[from] FileError),
    #[error(
        "the certificate authority in {directory} cannot be used; move ca.key and ca.crt away to create a new one"
    )]
    Authority { directory: String, source: rcgen::Error },
    #[error("failed to create a certificate")]
    Certificate(#[source] rcgen::Error),
}

/// Certificate and key of the listener, and the CA that clients trust.
pub struct ServingIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    ca_pem: String,
}

impl ServingIdentity {
    /// Loads the CA of a data directory, or creates it at the first start. The certificate is new
    /// at each start, and its key is never written to disk.
    pub fn load_or_create(data_dir: &Path) -> Result<Self, IdentityError> {
        files::create_private_dir(data_dir)?;
        let (key_path, cert_path) = (data_dir.join("ca.key"), data_dir.join("ca.crt"));
        let unusable =
            |source| IdentityError::Authority { directory: data_dir.display().to_string(), source };
        let (ca_key, ca_pem) = match (files::read_text(&key_path)?, files::read_text(&cert_path)?) {
            (Some(key), Some(cert)) => (KeyPair::from_pem(&key).map_err(unusable)?, cert),
            // A certificate without its key is unusable, and vice versa: create a new pair.
            _ => {
                let key = KeyPair::generate().map_err(IdentityError::Certificate)?;
                let cert = authority().self_signed(&key).map_err(IdentityError::Certificate)?;
                files::write_private(&key_path, key.serialize_pem().as_bytes())?;
                files::write_private(&cert_path, cert.pem().as_bytes())?;
                (key, cert.pem())
            }
        };
        Self::issue(Issuer::new(authority(), ca_key), ca_pem).map_err(IdentityError::Certificate)
    }

    fn issue(issuer: Issuer<'_, KeyPair>, ca_pem: String) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
        params.distinguished_name = named("quarry");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let cert = params.signed_by(&key, &issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Self { chain: vec![cert.der().clone()], key, ca_pem })
    }

    /// The CA certificate, for kubeconfigs.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    fn config(self) -> io::Result<rustls::ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(self.chain, self.key)
            })
            .map_err(io::Error::other)?;
        Ok(config)
    }
}

/// The same name at every start: certificates signed earlier stay valid.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("quarry-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut out = DistinguishedName::new();
    out.push(DnType::CommonName, name);
    out
}

/// Loads the bearer token of a data directory, or creates it at the first start.
pub fn load_or_create_token(data_dir: &Path) -> Result<String, FileError> {
    files::create_private_dir(data_dir)?;
    let path = data_dir.join("token");
    if let Some(token) = files::read_text(&path)?
        .map(|text| text.trim().to_owned())
        .filter(|token| !token.is_empty())
    {
        return Ok(token);
    }
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    files::write_private(&path, token.as_bytes())?;
    Ok(token)
}

/// What a client needs to reach the server.
pub struct Kubeconfig<'a> {
    /// `https://127.0.0.1:7420`
    pub server: &'a str,
    pub ca_pem: &'a str,
    pub token: &'a str,
    pub namespace: &'a str,
}

impl Kubeconfig<'_> {
    pub fn to_yaml(&self) -> String {
        use base64::Engine;
        let ca = base64::engine::general_purpose::STANDARD.encode(self.ca_pem);
        let Self { server, token, namespace, .. } = self;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: quarry\nclusters:\n- name: quarry\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\nusers:\n- name: quarry\n  user:\n    token: {token}\ncontexts:\n- name: quarry\n  context:\n    cluster: quarry\n    user: quarry\n    namespace: {namespace}\n"
        )
    }

    /// Writes the kubeconfig, readable by its owner only (mode 0600).
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        files::write_private(path, self.to_yaml().as_bytes())
    }
}

impl Server {
    /// Serves clients that present the token over TLS until `shutdown` is ready; then open
    /// connections end too.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: ServingIdentity,
        token: String,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let acceptor = TlsAcceptor::from(Arc::new(tls.config()?));
        let token: Arc<str> = token.into();
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                // Remove finished connections, or the set would grow without bound.
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(connection(self.clone(), acceptor.clone(), token.clone(), stream));
                    }
                    // Most likely out of file descriptors: give open connections time to end.
                    Err(why) => {
                        tracing::warn!(error = %why, "failed to accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }
}

async fn connection(server: Server, acceptor: TlsAcceptor, token: Arc<str>, stream: TcpStream) {
    // A watch event is small and should not wait for more.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => {
            tracing::debug!(error = %why, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (server, token) = (server.clone(), token.clone());
        async move { Ok::<_, Infallible>(guarded(server, &token, request).await) }
    });
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    if let Err(why) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(error = %why, "connection ended");
    }
}

async fn guarded(server: Server, token: &str, request: Request<Incoming>) -> Response<ApiBody> {
    let open = matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz" | "/version");
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if !open && !same(given.as_bytes(), token.as_bytes()) {
        return failure(&ApiError::new(401, "Unauthorized", "Unauthorized"));
    }
    match server.service().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Compares in constant time.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    given.len() == wanted.len()
        && given.iter().zip(wanted).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}
