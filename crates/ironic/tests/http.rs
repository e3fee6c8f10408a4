//! The client over real sockets on loopback: credentials, TLS, time limits, and what no response means.

#![allow(clippy::disallowed_methods, reason = "files of the test")]
#![allow(clippy::unwrap_used, reason = "a helper that fails also fails its test")]

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use quarry_ironic::reload::CHECK_INTERVAL;
use quarry_ironic::{
    Auth, Call, Client, Config, Meaning, PatchOp, Reach, Recorder, Reloading, Secret, Settings,
    http_transport,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What the server saw: method, path, a few headers, body.
#[derive(Debug, Clone, Default)]
struct Seen {
    line: String,
    authorization: Option<String>,
    version: Option<String>,
    body: String,
}

#[derive(Clone, Default)]
struct Server {
    seen: Arc<Mutex<Vec<Seen>>>,
    /// `Basic …` that is accepted; None: no authentication.
    accepts: Arc<Mutex<Option<String>>>,
}

impl Server {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let text = |name: &str| {
            request.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        let mut seen = Seen {
            line: format!("{} {}", request.method(), request.uri()),
            authorization: text("authorization"),
            version: text("x-openstack-ironic-api-version"),
            body: String::new(),
        };
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        seen.body = String::from_utf8(body.to_vec()).unwrap();
        let wanted = self.accepts.lock().unwrap().clone();
        let refused = wanted.is_some() && seen.authorization != wanted && path != "/v1";
        self.seen.lock().unwrap().push(seen);
        let (status, body) = match path.as_str() {
            _ if refused => {
                (401, r#"{"error":{"message":"Incorrect username or password","code":401}}"#)
            }
            "/v1" => (200, r#"{"version": {"min_version": "1.1", "version": "1.115"}}"#),
            "/v1/drivers" => (200, r#"{"drivers": [{"name": "redfish"}]}"#),
            "/v1/nodes/moved" => (302, ""),
            "/v1/nodes/slow" => {
                tokio::time::sleep(Duration::from_secs(20)).await;
                (200, "{}")
            }
            _ => (200, r#"{"uuid": "u"}"#),
        };
        let response =
            Response::builder().status(status).header(header::LOCATION, "http://192.0.2.1/");
        Ok(response.body(Full::new(Bytes::from(body))).unwrap())
    }

    /// Serves until the test ends; returns the port.
    async fn start(&self, tls: Option<rustls::ServerConfig>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (server, acceptor) = (self.clone(), tls.map(|tls| TlsAcceptor::from(Arc::new(tls))));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (server, acceptor) = (server.clone(), acceptor.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| server.clone().answer(request));
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client that leaves is part of these tests.
                    let _ = match acceptor {
                        None => http.serve_connection(TokioIo::new(stream), service).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => {
                                http.serve_connection(TokioIo::new(stream), service).await
                            }
                            Err(_) => return,
                        },
                    };
                });
            }
        });
        port
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn plain(port: u16) -> Config {
    Config::new(&format!("http://127.0.0.1:{port}")).unwrap()
}

async fn meaning(client: &Client) -> (Meaning, String) {
    let error = client.drivers().await.unwrap_err();
    (error.meaning, error.to_string())
}

#[tokio::test]
async fn requests_carry_version_body_and_credentials() {
    let server = Server::default();
    let mut config = plain(server.start(None).await);
    let password = Secret::new("hunter22");
    config.auth = Auth::Basic { username: "admin".to_owned(), password };
    let client = Client::new(&config).unwrap();
    let ops = vec![PatchOp::add("/extra/a", 1)];
    client.perform(&Call::PatchNode { id: "ns~a".to_owned(), ops }).await.unwrap();
    let seen = server.seen();
    assert_eq!((seen[0].line.as_str(), &seen[0].version), ("GET /v1", &None));
    assert_eq!(seen[1].line, "PATCH /v1/nodes/ns~a");
    assert_eq!(seen[1].version.as_deref(), Some("1.109"));
    assert_eq!(seen[1].authorization.as_deref(), Some("Basic YWRtaW46aHVudGVyMjI="));
    assert_eq!(seen[1].body, r#"[{"op":"add","path":"/extra/a","value":1}]"#);
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let server = Server::default();
    let client = Client::new(&plain(server.start(None).await)).unwrap();
    let error = client.node("moved").await.unwrap_err();
    assert_eq!(error.meaning, Meaning::Malformed, "{error}");
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn replaced_credentials_are_used() {
    let server = Server::default();
    let port = server.start(None).await;
    *server.accepts.lock().unwrap() = Some("Basic YWRtaW46Zmlyc3Q=".to_owned());
    let directory = TempDir::new().unwrap();
    let auth = directory.path().join("auth");
    fs::write(&auth, "admin:first\n").unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let reloading =
        Reloading::new(Settings { url, auth: Some(auth.clone()), ..Settings::default() });
    assert_eq!(reloading.client().unwrap().drivers().await.unwrap(), ["redfish"]);
    // Ironic gets another password first.
    *server.accepts.lock().unwrap() = Some("Basic YWRtaW46c2Vjb25k".to_owned());
    let (found, message) = meaning(&reloading.client().unwrap()).await;
    assert_eq!(found, Meaning::Unauthorized);
    assert!(message.contains("check --ironic-auth") && !message.contains("first"), "{message}");
    fs::write(&auth, "admin:second\n").unwrap();
    tokio::time::pause();
    tokio::time::advance(CHECK_INTERVAL).await;
    let client = reloading.client().unwrap();
    tokio::time::resume();
    assert_eq!(client.drivers().await.unwrap(), ["redfish"]);
}

#[tokio::test]
async fn a_slow_ironic_meets_the_time_limit() {
    let server = Server::default();
    let mut config = plain(server.start(None).await);
    config.total_limit = Duration::from_millis(300);
    let start = Instant::now();
    let error = Client::new(&config).unwrap().node("slow").await.unwrap_err();
    assert_eq!(error.meaning, Meaning::Unreachable(Reach::Timeout), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_listener_that_never_responds_meets_the_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut config = Config::new(&format!("https://127.0.0.1:{port}")).unwrap();
    config.insecure = true;
    config.connect_limit = Duration::from_millis(300);
    let (found, message) = meaning(&Client::new(&config).unwrap()).await;
    assert_eq!(found, Meaning::Unreachable(Reach::Timeout), "the handshake counts: {message}");
}

#[tokio::test]
async fn no_response_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (found, message) = meaning(&Client::new(&plain(port)).unwrap()).await;
    assert_eq!(found, Meaning::Unreachable(Reach::ConnectionRefused), "{message}");
    assert!(message.contains("check that Ironic runs"), "{message}");

    // A label has at most 63 characters: the resolver refuses this one without a question to a server.
    let config = Config::new(&format!("http://{}.invalid:6385", "a".repeat(64))).unwrap();
    let (found, message) = meaning(&Client::new(&config).unwrap()).await;
    assert_eq!(found, Meaning::Unreachable(Reach::Dns), "{message}");
    assert!(message.contains("aa.invalid") && message.contains("--ironic-url"), "{message}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let (found, message) = meaning(&Client::new(&plain(port)).unwrap()).await;
    assert_eq!(found, Meaning::Unreachable(Reach::Broken), "{message}");
}

/// A CA with a certificate for the server and one for the client, as files.
struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { directory: TempDir::new().unwrap(), issuer };
        authority.write("ca.crt", &authority.issuer.pem());
        let (cert, key) = authority.issue("client");
        authority.write("tls.crt", &cert.pem());
        authority.write("tls.key", &key.serialize_pem());
        authority
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A server with a certificate for 127.0.0.1 that requires one of a client.
    fn server(&self) -> rustls::ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let (cert, key) = self.issue("127.0.0.1");
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap()
    }

    fn settings(&self, port: u16) -> Settings {
        Settings {
            url: format!("https://127.0.0.1:{port}"),
            ca: Some(self.path("ca.crt")),
            client_cert: Some(self.path("tls.crt")),
            client_key: Some(self.path("tls.key")),
            ..Settings::default()
        }
    }
}

async fn drivers(settings: Settings) -> Result<Vec<String>, quarry_ironic::Error> {
    Client::new(&settings.load().unwrap()).unwrap().drivers().await
}

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let authority = Authority::new();
    let port = Server::default().start(Some(authority.server())).await;
    assert_eq!(drivers(authority.settings(port)).await.unwrap(), ["redfish"]);
    let insecure = Settings { ca: None, insecure: true, ..authority.settings(port) };
    assert_eq!(drivers(insecure).await.unwrap(), ["redfish"]);
}

#[tokio::test]
async fn missing_trust_is_a_tls_error() {
    let (authority, other) = (Authority::new(), Authority::new());
    let port = Server::default().start(Some(authority.server())).await;
    let good = || authority.settings(port);
    let by_name = Settings { url: format!("https://localhost:{port}"), ..good() };
    let cases = [
        ("a server of another CA", Settings { ca: Some(other.path("ca.crt")), ..good() }),
        ("the system's CAs", Settings { ca: None, ..good() }),
        ("a certificate for another name", by_name),
        ("no client certificate", Settings { client_cert: None, client_key: None, ..good() }),
        (
            "a client of another CA",
            Settings {
                client_cert: Some(other.path("tls.crt")),
                client_key: Some(other.path("tls.key")),
                ..good()
            },
        ),
    ];
    for (case, settings) in cases {
        let error = drivers(settings).await.expect_err(case);
        assert_eq!(error.meaning, Meaning::Unreachable(Reach::Tls), "{case}: {error}");
        assert!(error.message.contains("check --ironic-ca"), "{case}: {error}");
    }
}

#[tokio::test]
async fn a_conversation_is_appended_to_a_file() {
    let server = Server::default();
    let config = plain(server.start(None).await);
    let directory = TempDir::new().unwrap();
    let path: &Path = &directory.path().join("conversation.jsonl");
    for _ in 0..2 {
        let recorder = Recorder::append(http_transport(&config).unwrap(), path).unwrap();
        Client::with_transport(Arc::new(recorder)).drivers().await.unwrap();
    }
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(lines[..2], lines[2..]);
}
