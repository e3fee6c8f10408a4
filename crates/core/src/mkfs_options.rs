//! Which arguments of mkfs a StorageClass may pass on.
//!
//! An allow-list. A StorageClass must not make mkfs write elsewhere (an external journal or log device, another device
//! as positional argument), do nothing (dry run), override the UUID of the persistent link, or read files of the node.

use quarry_api::node_job::FsType;

/// `mkfsOptions` of a StorageClass: a JSON list of strings.
pub fn parse(fs: FsType, json: Option<&str>) -> Result<Vec<String>, String> {
    let Some(json) = json.filter(|text| !text.trim().is_empty()) else { return Ok(Vec::new()) };
    let options: Vec<String> =
        serde_json::from_str(json).map_err(|error| format!("parameter mkfsOptions is not a JSON list of strings ({error}); write it as '[\"-m\", \"0\"]'"))?;
    check(fs, &options)?;
    Ok(options)
}

/// `Err` names the first option that is not allowed.
pub fn check(fs: FsType, options: &[String]) -> Result<(), String> {
    let allowed = allowed(fs);
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let refuse = |why: &str| {
            Err(format!(
                "mkfs option {option:?} of {} is not allowed: {why}; allowed are {}",
                fs.as_str(),
                flags(allowed)
            ))
        };
        let Some(flag) =
            option.strip_prefix('-').and_then(|text| text.chars().next()).filter(|c| c.is_ascii())
        else {
            return refuse("it is not an option of the form -x");
        };
        let Some((_, takes)) = allowed.iter().find(|(name, _)| *name == flag) else {
            return refuse("it is not on the list");
        };
        let attached = &option[2..];
        let value = match (takes, attached.is_empty()) {
            (Value::None, true) => continue,
            (Value::None, false) => return refuse("put each option into its own element"),
            (Value::Any | Value::Keys(_) | Value::Features(_), false) => attached,
            (Value::Any | Value::Keys(_) | Value::Features(_), true) => match rest.next() {
                Some(value) => value.as_str(),
                None => return refuse("it needs a value"),
            },
        };
        if value.is_empty()
            || value.contains('/')
            || value.starts_with('-')
            || value.chars().any(char::is_control)
        {
            return Err(format!(
                "mkfs option {option:?} of {}: the value {value:?} is not allowed: it must name no path and no other option",
                fs.as_str()
            ));
        }
        let (keys, off) = match takes {
            Value::None | Value::Any => continue,
            Value::Keys(keys) => (keys, None),
            Value::Features(features) => (features, Some('^')),
        };
        for part in value.split(',') {
            let key = part.split('=').next().unwrap_or_default();
            let key = off.and_then(|off| key.strip_prefix(off)).unwrap_or(key);
            if !keys.contains(&key) {
                return Err(format!(
                    "mkfs option {option:?} of {}: {key:?} is not allowed; allowed are {}",
                    fs.as_str(),
                    keys.join(", ")
                ));
            }
        }
    }
    Ok(())
}

enum Value {
    None,
    /// Any word or number: the tool checks it.
    Any,
    /// `key=value,key` with keys from this list.
    Keys(&'static [&'static str]),
    /// `feature,^feature`: on or off, from this list. Not on it: journal_dev (no file system at all) and none.
    Features(&'static [&'static str]),
}

fn allowed(fs: FsType) -> &'static [(char, Value)] {
    match fs {
        FsType::Ext4 => &[
            ('b', Value::Any),
            ('C', Value::Any),
            ('e', Value::Keys(&["continue", "remount-ro"])),
            (
                'E',
                Value::Keys(&[
                    "stride",
                    "stripe_width",
                    "resize",
                    "lazy_itable_init",
                    "lazy_journal_init",
                    "num_backup_sb",
                    "packed_meta_blocks",
                    "root_owner",
                    "root_perms",
                    "discard",
                    "nodiscard",
                    "quotatype",
                    "hash_seed",
                ]),
            ),
            ('g', Value::Any),
            ('G', Value::Any),
            ('i', Value::Any),
            ('I', Value::Any),
            ('J', Value::Keys(&["size", "fast_commit_size", "location"])),
            ('L', Value::Any),
            ('m', Value::Any),
            ('N', Value::Any),
            (
                'O',
                Value::Features(&[
                    "64bit",
                    "bigalloc",
                    "casefold",
                    "dir_index",
                    "dir_nlink",
                    "ea_inode",
                    "encrypt",
                    "ext_attr",
                    "extent",
                    "extents",
                    "extra_isize",
                    "fast_commit",
                    "filetype",
                    "flex_bg",
                    "has_journal",
                    "huge_file",
                    "inline_data",
                    "large_dir",
                    "large_file",
                    "metadata_csum",
                    "metadata_csum_seed",
                    "meta_bg",
                    "orphan_file",
                    "project",
                    "quota",
                    "resize_inode",
                    "sparse_super",
                    "sparse_super2",
                    "stable_inodes",
                    "uninit_bg",
                    "verity",
                ]),
            ),
            ('j', Value::None),
            ('q', Value::None),
            ('v', Value::None),
        ],
        FsType::Xfs => &[
            ('b', Value::Keys(&["size", "log"])),
            (
                'd',
                Value::Keys(&[
                    "agcount",
                    "agsize",
                    "sunit",
                    "swidth",
                    "su",
                    "sw",
                    "noalign",
                    "sectsize",
                    "sectlog",
                    "rtinherit",
                    "extszinherit",
                    "projinherit",
                    "daxinherit",
                    "cowextsize",
                    "concurrency",
                ]),
            ),
            (
                'i',
                Value::Keys(&[
                    "size",
                    "log",
                    "perblock",
                    "maxpct",
                    "align",
                    "attr",
                    "projid32bit",
                    "sparse",
                    "nrext64",
                    "exchange",
                ]),
            ),
            (
                'l',
                Value::Keys(&[
                    "size",
                    "version",
                    "sunit",
                    "su",
                    "sectsize",
                    "sectlog",
                    "lazy-count",
                    "concurrency",
                    "agnum",
                    "internal",
                ]),
            ),
            ('L', Value::Any),
            (
                'm',
                Value::Keys(&[
                    "bigtime",
                    "crc",
                    "finobt",
                    "inobtcount",
                    "rmapbt",
                    "reflink",
                    "autofsck",
                    "metadir",
                ]),
            ),
            ('n', Value::Keys(&["size", "log", "version", "ftype", "parent"])),
            ('s', Value::Keys(&["size", "log"])),
            ('K', Value::None),
            ('q', Value::None),
        ],
    }
}

fn flags(allowed: &[(char, Value)]) -> String {
    allowed.iter().map(|(flag, _)| format!("-{flag}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(fs: FsType, options: &[&str]) -> Result<(), String> {
        check(fs, &options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_upstream_class_and_common_tuning_are_allowed() {
        checked(FsType::Ext4, &["-m", "0"]).unwrap();
        checked(
            FsType::Ext4,
            &["-m0", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-O", "^has_journal"],
        )
        .unwrap();
        checked(FsType::Xfs, &["-m", "reflink=0,crc=1", "-i", "size=1024", "-K"]).unwrap();
        assert_eq!(parse(FsType::Ext4, Some("[\"-m\",\"0\"]")).unwrap(), ["-m", "0"]);
        assert_eq!(parse(FsType::Xfs, None).unwrap(), Vec::<String>::new());
        assert_eq!(parse(FsType::Xfs, Some(" ")).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn nothing_that_reaches_another_device_or_file_passes() {
        for (fs, options) in [
            (FsType::Ext4, &["/dev/sda"] as &[&str]),
            (FsType::Ext4, &["-J", "device=/dev/sdb"]),
            (FsType::Ext4, &["-J", "device=LABEL"]),
            (FsType::Ext4, &["-d", "etc"]),
            (FsType::Ext4, &["-O", "journal_dev"]),
            (FsType::Ext4, &["-O", "^has_journal,journal_dev"]),
            (FsType::Ext4, &["-Ojournal_dev"]),
            (FsType::Ext4, &["-O", "none"]),
            (FsType::Ext4, &["-l", "badblocks"]),
            (FsType::Ext4, &["-z", "undo"]),
            (FsType::Ext4, &["-E", "offset=4096"]),
            (FsType::Xfs, &["-l", "logdev=/dev/sdb"]),
            (FsType::Xfs, &["-l", "logdev=sdb"]),
            (FsType::Xfs, &["-d", "name=/dev/sdb"]),
            (FsType::Xfs, &["-d", "file=1"]),
            (FsType::Xfs, &["-r", "rtdev=sdb"]),
            (FsType::Xfs, &["-p", "proto"]),
            (FsType::Xfs, &["-c", "options=x"]),
            (FsType::Xfs, &["-L", "/dev/sda"]),
        ] {
            assert!(checked(fs, options).is_err(), "{fs:?} {options:?}");
        }
    }

    #[test]
    fn nothing_that_defeats_the_format_passes() {
        for (fs, options) in [
            (FsType::Ext4, &["-n"] as &[&str]),
            (FsType::Ext4, &["-U", "clear"]),
            (FsType::Ext4, &["-S"]),
            (FsType::Ext4, &["-F"]),
            (FsType::Ext4, &["-t", "ext2"]),
            (FsType::Ext4, &["-T", "ext2"]),
            (FsType::Ext4, &["-o", "Hurd"]),
            (FsType::Ext4, &["-r", "0"]),
            (FsType::Ext4, &["-e", "panic"]),
            (FsType::Ext4, &["-qn"]),
            (FsType::Ext4, &["-V"]),
            (FsType::Xfs, &["-N"]),
            (FsType::Xfs, &["-m", "uuid=0"]),
            (FsType::Xfs, &["-m", "crc=1,uuid=0"]),
            (FsType::Xfs, &["-f"]),
            (FsType::Xfs, &["-d", "size=1m"]),
            (FsType::Xfs, &["-m"]),
            (FsType::Xfs, &["-L", "-N"]),
            (FsType::Xfs, &[""]),
            (FsType::Xfs, &["-"]),
            (FsType::Xfs, &["--help"]),
        ] {
            assert!(checked(fs, options).is_err(), "{fs:?} {options:?}");
        }
    }

    #[test]
    fn an_error_names_the_option_and_what_is_allowed() {
        let error = parse(FsType::Xfs, Some("[\"-N\"]")).unwrap_err();
        assert!(error.contains("\"-N\"") && error.contains("allowed are -b -d"), "{error}");
        assert!(parse(FsType::Xfs, Some("-N")).unwrap_err().contains("JSON list"));
    }
}
