//! A copy of a partition for a broker to take over.
//!
//! What is copied is what a broker keeps in a partition's directory: segments (without the zeros behind their end),
//! their indexes, producer snapshots, the leader epochs. What is ours alone stays: the lock, the marker, the
//! checkpoints. Into a broker's directory of a topic that was just made the segments go in the place of the empty
//! one; its `partition.metadata` stays, and the marker of a clean shutdown above it goes, so that the broker checks
//! what it was given when it starts.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use super::directory::{Contents, SegmentFile};
use super::walk::{LogFile, Piece};

/// What was done besides copying, a sentence each.
pub(crate) type Notes = Vec<String>;

const EPOCHS: &str = "leader-epoch-checkpoint";
const METADATA: &str = "partition.metadata";
const MARKER: &str = ".kafka_cleanshutdown";

/// Copies the partition in `source` into `target`, which is made if it is missing.
///
/// # Errors
/// Where the target holds records already, or where a segment is damaged before its end: a broker would cut it
/// there and drop everything behind.
pub(crate) fn export(source: &Path, target: &Path) -> Result<Notes, Box<dyn Error + Send + Sync>> {
    let contents = Contents::read(source)?;
    let mut notes = Notes::new();
    let ends = sound_ends(&contents, &mut notes)?;
    fs::create_dir_all(target)?;
    let target = fs::canonicalize(target)?;
    if target == contents.path {
        return Err("the copy cannot lie where the partition lies".into());
    }
    clear(&target)?;
    for (segment, end) in contents.segments.iter().zip(ends) {
        copy_segment(&contents, segment, end, &target)?;
    }
    for snapshot in &contents.snapshots {
        copy(&contents.path.join(&snapshot.name), &target, u64::MAX)?;
    }
    if contents.path.join(EPOCHS).exists() {
        copy(&contents.path.join(EPOCHS), &target, u64::MAX)?;
    }
    note_metadata(&target, &mut notes);
    remove_marker(&target, &mut notes)?;
    note_log_start(&contents, &mut notes);
    File::open(&target)?.sync_all()?;
    Ok(notes)
}

/// Up to where each segment is sound.
fn sound_ends(contents: &Contents, notes: &mut Notes) -> Result<Vec<u64>, Box<dyn Error + Send + Sync>> {
    let mut ends = Vec::new();
    for (number, segment) in contents.segments.iter().enumerate() {
        let (mut end, mut damage) = (0, None);
        for piece in LogFile::open(&segment.path)?.pieces() {
            let sound = match piece? {
                Piece::Batch { position, batches } => position + batches.size_bytes() as u64,
                Piece::Sealed { position, header, .. } => position + header.size(),
                Piece::Damage { bytes, reason } => {
                    damage = Some(format!("{} is damaged at byte {}: {reason}", segment.name, bytes.start));
                    continue;
                }
                Piece::Window { .. } => continue,
            };
            if let Some(damage) = damage {
                return Err(format!("{damage}; a broker would drop what lies behind").into());
            }
            end = sound;
        }
        let is_last = number + 1 == contents.segments.len();
        match damage {
            Some(damage) if is_last => notes.push(format!("{damage}; the copy ends there")),
            Some(damage) => return Err(format!("{damage}; a broker would drop the later segments").into()),
            None => {}
        }
        ends.push(end);
    }
    Ok(ends)
}

/// Takes an empty partition's files out of the target. One with records is left as it is.
fn clear(target: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(target)? {
        let entry = entry?;
        let path = entry.path();
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default().to_owned();
        if kind == "log" && entry.metadata()?.len() > 0 {
            return Err(format!("{} holds records already", path.display()).into());
        }
        let goes = ["log", "index", "timeindex", "txnindex", "snapshot"].contains(&kind.as_str());
        files.extend((goes || path.ends_with(EPOCHS)).then_some(path));
    }
    for file in files {
        fs::remove_file(file)?;
    }
    Ok(())
}

/// Copies a segment. The indexes of one that was not closed may be behind its log: a broker makes them anew.
fn copy_segment(contents: &Contents, segment: &SegmentFile, end: u64, target: &Path) -> io::Result<()> {
    copy(&segment.path, target, end)?;
    let is_last = contents.segments.last().is_some_and(|last| last.base == segment.base);
    for kind in ["index", "timeindex", "txnindex"] {
        let index = segment.path.with_extension(kind);
        if index.exists() && (contents.is_clean || !is_last) {
            copy(&index, target, u64::MAX)?;
        }
    }
    Ok(())
}

/// Copies the front of a file, and syncs the copy.
fn copy(file: &Path, target: &Path, bytes: u64) -> io::Result<()> {
    let copy = target.join(file.file_name().unwrap_or_default());
    let mut copy = File::create_new(copy)?;
    io::copy(&mut File::open(file)?.take(bytes), &mut copy)?;
    copy.sync_all()
}

fn note_metadata(target: &Path, notes: &mut Notes) {
    let note = if target.join(METADATA).exists() {
        format!("kept the broker's {METADATA}")
    } else {
        format!("the broker's {METADATA} of the topic has to lie in {} before it starts", target.display())
    };
    notes.push(note);
}

/// With the marker of a clean shutdown a broker would trust its old checkpoints.
fn remove_marker(target: &Path, notes: &mut Notes) -> io::Result<()> {
    let marker = target.parent().unwrap_or(target).join(MARKER);
    if marker.exists() {
        fs::remove_file(&marker)?;
        notes.push(format!("removed {}: the broker has to check what it was given", marker.display()));
    }
    Ok(())
}

fn note_log_start(contents: &Contents, notes: &mut Notes) {
    let first = contents.segments.first().map(|segment| segment.base);
    if let Some(start) = contents.log_start().filter(|start| first.is_some_and(|first| *start > first)) {
        notes.push(format!("records below offset {start} were trimmed and lie in the first segment still"));
    }
}
