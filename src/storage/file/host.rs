//! What the operating system says about itself: file systems, the limit of open files, the boot.
//!
//! All of it is read from text under `/proc` on Linux and unknown elsewhere. The parsers are pure, and what
//! they do not understand is unknown, never an error.

use std::fs;
use std::path::{Path, PathBuf};

/// File systems that keep their bytes on this machine and whose maps show what was written. Any other
/// (network file systems, FUSE, and what nobody has looked at) is not known as local.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "jfs", "msdos", "nilfs2", "ntfs3",
    "overlay", "ramfs", "reiserfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// Files that a storage keeps open where the limit is not known.
const OPEN_FILES: usize = 512;

/// The most it keeps open by default: each may have a map, and Linux gives a process 65,530 of those.
const OPEN_FILES_MAX: usize = 16_384;

/// Half of the process's soft limit of open files.
pub(super) fn default_open_files() -> usize {
    let limit = fs::read_to_string("/proc/self/limits").ok().and_then(|text| soft_limit(&text));
    limit.map_or(OPEN_FILES, |limit| (limit / 2).clamp(8, OPEN_FILES_MAX))
}

/// Whether a path lies on a file system that is known as local.
pub(super) fn is_local(path: &Path) -> bool {
    let Ok(path) = fs::canonicalize(path) else { return false };
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return false };
    file_system(&mounts, &path).is_some_and(|kind| LOCAL.contains(&kind))
}

/// The kernel's id of this boot.
pub(super) fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The soft limit of open files out of `/proc/self/limits`.
fn soft_limit(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(usize::MAX),
        number => number.parse().ok(),
    }
}

/// The type of the file system that holds `path`, out of `/proc/self/mountinfo`: of the mount with the
/// longest prefix, the last one where several are mounted over each other.
fn file_system<'a>(mountinfo: &'a str, path: &Path) -> Option<&'a str> {
    let mounts = mountinfo.lines().filter_map(mount).filter(|(point, _)| path.starts_with(point));
    mounts.max_by_key(|(point, _)| point.components().count()).map(|(_, kind)| kind)
}

/// Mount point and type in a line such as
/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn mount(line: &str) -> Option<(PathBuf, &str)> {
    let (mount, system) = line.split_once(" - ")?;
    let point = mount.split(' ').nth(4)?;
    Some((PathBuf::from(unescape(point)), system.split(' ').next()?))
}

/// Replaces the kernel's octal escapes of blanks and backslashes.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 27 0:30 / /srv rw - nfs4 server:/export rw
32 31 0:31 / /srv/fast\\040disk rw shared:7 master:2 - xfs /dev/sdb rw
33 31 0:32 / /srv/over rw - xfs /dev/sdc rw
34 33 0:33 / /srv/over rw - fuse.sshfs me@there: rw
35 27 0:34 / /odd rw - somethingfs none rw
a line of nonsense
";

    #[test]
    fn the_longest_mount_says_what_a_path_lies_on() {
        let kind = |path: &str| file_system(MOUNTS, Path::new(path));
        assert_eq!(kind("/var/log"), Some("ext4"));
        assert_eq!(kind("/srv/a/b"), Some("nfs4"));
        assert_eq!(kind("/srvx"), Some("ext4"));
        assert_eq!(kind("/srv/fast disk/a"), Some("xfs"));
        assert_eq!(kind("/srv/over/a"), Some("fuse.sshfs"));
        assert_eq!(file_system("", Path::new("/a")), None);
    }

    #[test]
    fn only_known_file_systems_are_local() {
        for (path, local) in [("/var", true), ("/srv", false), ("/srv/over", false), ("/odd", false)] {
            let kind = file_system(MOUNTS, Path::new(path));
            assert_eq!(kind.is_some_and(|kind| LOCAL.contains(&kind)), local, "{path}");
        }
    }

    #[test]
    fn the_soft_limit_is_the_first_number() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             95948                95948                processes \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(soft_limit(limits), Some(1024));
        assert_eq!(soft_limit("Max open files            unlimited  unlimited files"), Some(usize::MAX));
        assert_eq!(soft_limit("Max processes 3 3 processes"), None);
    }
}
