//! Tests: settings that are accepted, and the messages of those that are not.

use super::*;
use std::fs;
use tempfile::TempDir;

fn settings(url: &str) -> Settings {
    Settings { url: url.to_owned(), ..Settings::default() }
}

#[expect(clippy::disallowed_methods, reason = "files of the test")]
fn file(directory: &TempDir, name: &str, content: &str) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn urls_with_and_without_the_version_are_the_same() {
    for url in [
        "https://ironic.example:6385",
        "https://ironic.example:6385/",
        "https://ironic.example:6385/v1",
        " https://ironic.example:6385/v1/ ",
    ] {
        assert_eq!(settings(url).load().unwrap().base(), "https://ironic.example:6385");
    }
    assert_eq!(settings("http://[::1]/bare/v1/").load().unwrap().base(), "http://[::1]/bare");
}

#[test]
fn unusable_urls_name_the_argument() {
    for (url, part) in [
        ("", "is not a URL"),
        ("ironic:6385", "another scheme"),
        ("ironic.example", "is not a URL"),
        ("ftp://ironic", "another scheme"),
        ("https://", "is not a URL"),
        ("https://h/?a=b", "a query"),
        ("https://admin:hunter22@h", "--ironic-auth"),
    ] {
        let error = settings(url).load().unwrap_err().to_string();
        assert!(error.starts_with("--ironic-url"), "{error}");
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("hunter22"), "{error}");
        assert!(error.ends_with("write it as https://HOST:6385"), "{error}");
    }
}

#[test]
fn credentials_come_from_a_directory_or_a_file() {
    let directory = TempDir::new().unwrap();
    file(&directory, "username", "admin\n");
    file(&directory, "password", "a:b c\n");
    let both = file(&directory, "both", "admin:a:b c");
    for path in [directory.path().to_owned(), both] {
        let settings = Settings { auth: Some(path), ..settings("http://h") };
        let config = settings.load().unwrap();
        let password = Secret::new("a:b c");
        assert_eq!(config.auth, Auth::Basic { username: "admin".to_owned(), password });
        assert!(!format!("{config:?} {settings:?}").contains("a:b c"));
    }
}

#[test]
fn unusable_credentials_name_the_file_and_the_remedy() {
    let directory = TempDir::new().unwrap();
    let cases = [
        ("one", "admin", "no colon"),
        ("two", ":hunter22", "empty user name"),
        ("three", "admin:", "empty password"),
        ("four", "admin:hunter22\nroot:hunter22\n", "more than one line"),
        ("five", "admin:$2y$05$hunter22", "hash of a password"),
    ];
    for (name, content, part) in cases {
        let auth = Some(file(&directory, name, content));
        let error = Settings { auth, ..settings("http://h") }.load().unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(&format!("/{name} ")), "{error}");
        assert!(error.contains("--ironic-auth") && error.contains("USERNAME:PASSWORD"), "{error}");
        assert!(!error.contains("hunter22"), "{error}");
    }
    let auth = Some(directory.path().to_owned());
    let error = Settings { auth, ..settings("http://h") }.load().unwrap_err().to_string();
    assert!(error.contains("/username cannot be read"), "{error}");
}

#[test]
fn unusable_certificates_name_the_argument() {
    let directory = TempDir::new().unwrap();
    let path = file(&directory, "ca.crt", "not a certificate");
    let https = || settings("https://h");
    let error = Settings { ca: Some(path.clone()), ..https() }.load().unwrap_err().to_string();
    assert!(error.contains("--ironic-ca") && error.contains("no certificate"), "{error}");
    let pem = "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n";
    let broken = file(&directory, "broken.crt", pem);
    let error = Settings { ca: Some(broken), ..https() }.load().unwrap_err().to_string();
    assert!(error.contains("not valid PEM"), "{error}");
    let certified = rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap();
    let cert = file(&directory, "tls.crt", &certified.cert.pem());
    let both = |key| Settings { client_cert: Some(cert.clone()), client_key: Some(key), ..https() };
    let error = both(path).load().unwrap_err().to_string();
    assert!(error.contains("--ironic-client-key") && error.contains("ca.crt"), "{error}");
    let other = rcgen::KeyPair::generate().unwrap();
    let config = both(file(&directory, "tls.key", &other.serialize_pem())).load().unwrap();
    let error = crate::Client::new(&config).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("--ironic-client-key"), "the key of another certificate: {error}");
}

#[test]
fn settings_without_effect_are_refused() {
    let path = || Some(PathBuf::from("/nowhere"));
    let cases = [
        Settings { client_cert: path(), ..settings("https://h") },
        Settings { client_key: path(), ..settings("https://h") },
        Settings { ca: path(), insecure: true, ..settings("https://h") },
        Settings { ca: path(), ..settings("http://h") },
        Settings { insecure: true, ..settings("http://h") },
    ];
    for settings in cases {
        let error = settings.load().unwrap_err();
        assert!(matches!(error, ConfigError::Combination(_)), "{error}");
    }
}
