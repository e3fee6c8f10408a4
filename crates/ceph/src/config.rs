//! `ceph.conf` and keyrings: rendered, and read as far as Quarry has to know them.
//!
//! `fsid` and `mon_host` always come from the cluster's own objects. The text of the ConfigMap
//! `rook-config-override` supplies everything else; where it names another cluster it is refused, because a command
//! would talk to that one.

use crate::{Key, Secret, Uuid};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "line {line} of rook-config-override sets fsid to {found}, but the cluster has {expected}; remove that line"
    )]
    OtherFsid { line: usize, found: String, expected: Uuid },
    #[error(
        "line {line} of rook-config-override is in no section; put a line such as [global] before it"
    )]
    NoSection { line: usize },
    #[error(
        "the addresses of the monitors (mon_host) are missing; check the Secret rook-ceph-config"
    )]
    NoMonHost,
    #[error("mon_host contains a line break; check the Secret rook-ceph-config")]
    InvalidMonHost,
    #[error("the keyring names no user; it must have a section such as [client.bootstrap-osd]")]
    NoUser,
    #[error("the keyring has no usable key for {user}: {problem}")]
    NoKey { user: String, problem: String },
}

const GLOBAL: &str = "[global]";

/// `defaults` are settings of `[global]` that the override may change.
pub fn ceph_conf(
    fsid: &Uuid,
    mon_host: &str,
    defaults: &[(&str, &str)],
    overrides: &str,
) -> Result<String, ConfigError> {
    let mon_host = mon_host.trim();
    if mon_host.is_empty() {
        return Err(ConfigError::NoMonHost);
    }
    if mon_host.contains(['\n', '\r']) {
        return Err(ConfigError::InvalidMonHost);
    }
    let sections = sections(overrides)?;
    let mut global = Vec::new();
    let mut set = Vec::new();
    for Line { number, text } in lines_of(&sections, GLOBAL) {
        match setting(text) {
            Some((name, value)) if name == "fsid" => {
                if value.parse::<Uuid>().as_ref() != Ok(fsid) {
                    return Err(ConfigError::OtherFsid {
                        line: number,
                        found: value.chars().take(64).collect(),
                        expected: fsid.clone(),
                    });
                }
            }
            Some((name, _)) if name == "mon_host" => {}
            found => {
                set.extend(found.map(|(name, _)| name));
                global.push(text);
            }
        }
    }
    let mut conf = format!("{GLOBAL}\nfsid = {fsid}\nmon_host = {mon_host}\n");
    for (name, value) in defaults.iter().filter(|(name, _)| !set.iter().any(|one| one == name)) {
        conf.push_str(&format!("{name} = {value}\n"));
    }
    global.iter().for_each(|line| push_line(&mut conf, line));
    for section in sections.iter().filter(|section| section.name != GLOBAL) {
        push_line(&mut conf, section.name);
        section.lines.iter().for_each(|line| push_line(&mut conf, line.text));
    }
    Ok(conf)
}

fn push_line(conf: &mut String, line: &str) {
    conf.push_str(line);
    conf.push('\n');
}

struct Section<'a> {
    /// With its brackets.
    name: &'a str,
    lines: Vec<Line<'a>>,
}

#[derive(Clone, Copy)]
struct Line<'a> {
    /// From 1.
    number: usize,
    text: &'a str,
}

fn sections(text: &str) -> Result<Vec<Section<'_>>, ConfigError> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let bare = without_comment(text).trim();
        if bare.starts_with('[') && bare.ends_with(']') {
            sections.push(Section { name: bare, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(Line { number: index + 1, text: text.trim_end() });
        } else if !bare.is_empty() {
            return Err(ConfigError::NoSection { line: index + 1 });
        }
    }
    Ok(sections)
}

fn lines_of<'a>(sections: &'a [Section<'a>], name: &'a str) -> impl Iterator<Item = Line<'a>> {
    let named = sections.iter().filter(move |section| section.name == name);
    named.flat_map(|section| section.lines.iter().copied())
}

/// Ceph treats space, hyphen and underscore in a name alike.
fn setting(line: &str) -> Option<(String, &str)> {
    let (name, value) = without_comment(line).split_once('=')?;
    let name = name.split([' ', '\t', '-', '_']).filter(|word| !word.is_empty());
    let name: Vec<String> = name.map(str::to_ascii_lowercase).collect();
    Some((name.join("_"), value.trim().trim_matches(['"', '\''])))
}

fn without_comment(line: &str) -> &str {
    line.split(['#', ';']).next().unwrap_or_default()
}

/// A keyring with one user.
pub fn keyring(user: &str, key: &Key) -> Secret {
    Secret::new(format!("[{user}]\n\tkey = {}\n", key.reveal()))
}

/// A user of a keyring, as `client.bootstrap-osd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub key: Key,
}

/// The first user whose name begins with `client.`; daemons have keyrings of their own.
pub fn parse_keyring(text: &str) -> Result<User, ConfigError> {
    let sections = sections(text).map_err(|_| ConfigError::NoUser)?;
    let named = sections.iter().map(|one| (one.name.trim_matches(['[', ']']).trim(), one));
    let Some((name, section)) = named.into_iter().find(|(name, _)| name.starts_with("client."))
    else {
        return Err(ConfigError::NoUser);
    };
    let no_key = |problem: String| ConfigError::NoKey { user: name.to_owned(), problem };
    let mut settings = section.lines.iter().filter_map(|line| setting(line.text));
    let Some((_, key)) = settings.find(|(name, _)| name == "key") else {
        return Err(no_key("no line `key = …`".into()));
    };
    let key = Key::parse(key).map_err(|error| no_key(error.to_string()))?;
    Ok(User { name: name.to_owned(), key })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AQAAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==";

    fn fsid() -> Uuid {
        "b84b331e-f09c-4be5-ac02-c900d1967422".parse().unwrap()
    }

    #[test]
    fn override_is_merged_below_one_global_section() {
        let overrides = "# ours\n[global]\nfsid = B84B331E-f09c-4be5-ac02-c900d1967422\nmon host = 10.0.0.9\n\
            osd pool default size = 1 ; small\nlog-to-file = true\n[osd]\nbluestore_cache_size = 1\n[global]\nx = y\n";
        let defaults = [("log_to_file", "false"), ("log_to_stderr", "true")];
        let conf =
            ceph_conf(&fsid(), "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]\n", &defaults, overrides);
        insta::assert_snapshot!(conf.unwrap(), @r"
        [global]
        fsid = b84b331e-f09c-4be5-ac02-c900d1967422
        mon_host = [v2:10.0.0.1:3300,v1:10.0.0.1:6789]
        log_to_stderr = true
        osd pool default size = 1 ; small
        log-to-file = true
        x = y
        [osd]
        bluestore_cache_size = 1
        ");
    }

    #[test]
    fn conf_without_an_override_is_complete() {
        insta::assert_snapshot!(ceph_conf(&fsid(), "10.0.0.1", &[], "").unwrap(), @r"
        [global]
        fsid = b84b331e-f09c-4be5-ac02-c900d1967422
        mon_host = 10.0.0.1
        ");
    }

    #[test]
    fn invalid_settings_are_named() {
        let conf = |mon_host, text| ceph_conf(&fsid(), mon_host, &[], text).unwrap_err();
        assert_eq!(conf(" ", ""), ConfigError::NoMonHost);
        assert_eq!(conf("a\n[osd]\nb", ""), ConfigError::InvalidMonHost);
        assert_eq!(conf("a", "\nx = 1\n"), ConfigError::NoSection { line: 2 });
        let other = "[global]\nfsid = c84b331e-f09c-4be5-ac02-c900d1967422\n";
        assert!(
            conf("a", other).to_string().starts_with("line 2 of rook-config-override sets fsid")
        );
    }

    #[test]
    fn keyring_is_read_as_it_is_written() {
        let key = Key::parse(KEY).unwrap();
        let text = keyring("client.bootstrap-osd", &key);
        assert_eq!(format!("{text:?}"), "******");
        let user = parse_keyring(text.reveal()).unwrap();
        assert_eq!((user.name.as_str(), &user.key), ("client.bootstrap-osd", &key));
        assert!(!format!("{user:?}").contains(KEY), "{user:?}");
        let admin =
            format!("[mon.]\nkey = x\n[client.admin]\n\tkey = {KEY}\n\tcaps mon = \"allow *\"\n");
        assert_eq!(parse_keyring(&admin).unwrap().name, "client.admin");
    }

    #[test]
    fn unusable_keyring_is_refused_without_quoting_it() {
        for text in [
            "",
            "key = AQprivate",
            "[mon.]\nkey = AQprivate",
            "[client.x]\n",
            "[client.x]\nkey = AQprivate",
        ] {
            let error = parse_keyring(text).unwrap_err().to_string();
            assert!(error.contains("keyring") && !error.contains("private"), "{error}");
        }
    }
}
