//! The cases: what is done before and after a commit.

/// What the last fsync of a case ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A log in the superblock.
    Log,
    /// The kernel finds a log not safe, and commits.
    Commit,
    /// The one or the other.
    Either,
}

/// One case.
pub struct Case<'a> {
    pub name: &'a str,
    pub mkfs: &'a [&'a str],
    pub mount: &'a str,
    pub before: &'a str,
    pub after: &'a str,
    pub outcome: Outcome,
}

/// The defaults of mkfs.btrfs.
pub const PLAIN: &[&str] = &[];
/// Holes have items.
pub const WITH_HOLES: &[&str] = &["-O", "^no-holes"];

const fn case(name: &'static str, before: &'static str, after: &'static str) -> Case<'static> {
    Case { name, mkfs: PLAIN, mount: "", before, after, outcome: Outcome::Log }
}

impl Case<'static> {
    const fn mkfs(self, mkfs: &'static [&'static str]) -> Self {
        Self { mkfs, ..self }
    }

    const fn mount(self, mount: &'static str) -> Self {
        Self { mount, ..self }
    }

    const fn commits(self) -> Self {
        Self { outcome: Outcome::Commit, ..self }
    }
}

pub const EXTENTS: &[Case<'static>] = &[
    case("create, write, fsync", "", "write foo 0 20000; fsync foo"),
    case("inline file", "", "echo hello > foo; fsync foo"),
    case("overwrite in the middle", "write foo 0 1m", "write foo 256k 64k 0xbb; fsync foo"),
    case("append", "write foo 0 10000", "write foo 10000 100000 0xbb; fsync foo"),
    case("inline to regular", "echo hi > foo", "write foo 0 40000 0xbb; fsync foo"),
    case("truncate down", "write foo 0 1m", "truncate -s 300001 foo; fsync foo"),
    case(
        "truncate down then up",
        "write foo 0 1m",
        "truncate -s 5000 foo; truncate -s 700000 foo; fsync foo",
    ),
    case("truncate to zero and write inline", "write foo 0 1m", "truncate -s 0 foo; echo x > foo; fsync foo"),
    case("sparse write far away", "write foo 0 4096", "write foo 8m 4096 0xbb; fsync foo"),
    case("punch a hole", "write foo 0 1m", "io foo 'fpunch 100k 300k'; fsync foo"),
    case("punch part of a page", "write foo 0 16k", "io foo 'fpunch 1000 500'; fsync foo"),
    case("punch beside a hole", "write foo 0 64k; write foo 256k 64k", "io foo 'fpunch 32k 64k'; fsync foo"),
    case("zero a range", "write foo 0 1m", "io foo 'fzero 64k 200k'; fsync foo"),
    case("preallocated beyond the end kept", "write foo 0 16k", "io foo 'falloc -k 16k 1m'; fsync foo"),
    case(
        "write, fsync, preallocate, fsync",
        "",
        "write foo 0 16k; fsync foo; io foo 'falloc -k 16k 4k'; fsync foo",
    ),
    case("preallocated across the end", "write foo 0 10k", "io foo 'falloc 4k 100k'; fsync foo"),
    case("tiny file, preallocated past the end", "echo tiny > foo", "io foo 'falloc 0 64k'; fsync foo"),
    case(
        "tiny file, preallocated past the end, size kept",
        "echo tiny > foo",
        "io foo 'falloc -k 0 64k'; fsync foo",
    ),
    case("preallocated written in part", "io foo 'falloc 0 1m'", "write foo 100k 100k; fsync foo"),
    case(
        "preallocated and truncated",
        "io foo 'falloc -k 0 1m'; write foo 0 8k",
        "truncate -s 4k foo; fsync foo",
    ),
    case(
        "many extents",
        "",
        "for i in $(seq 0 700); do echo pwrite -b 4k $((i * 8192)) 4k; done | xfs_io -f -s foo > /dev/null; fsync foo",
    ),
    case(
        "many extents rewritten between fsyncs",
        "for i in $(seq 0 300); do echo pwrite $((i * 8192)) 4k; done | xfs_io -f -s foo > /dev/null",
        "write foo 0 1m 1; fsync foo; write foo 64k 128k 2; fsync foo; write foo 100k 8k 3; fsync foo",
    ),
    case("fsync twice", "", "write foo 0 50000; fsync foo; write foo 20000 50000 0xbb; fsync foo"),
    case("fdatasync", "write foo 0 100k", "write foo 50k 100k 0xbb; fdatasync foo"),
    case(
        "mmap and ranged msync",
        "write foo 0 1m",
        "io foo 'mmap -rw 0 1m' 'mwrite -S 1 8k 4k' 'mwrite -S 2 512k 8k' 'msync -s 8k 4k' 'msync -s 512k 8k'",
    ),
    case("synchronous writes", "write foo 0 1m", "xfs_io -s -c 'pwrite -S 5 4k 12k' foo > /dev/null"),
    case(
        "direct synchronous writes",
        "write foo 0 1m",
        "xfs_io -d -D -c 'pwrite -S 5 64k 64k' foo > /dev/null || xfs_io -d -s -c 'pwrite -S 5 64k 64k' foo > /dev/null",
    ),
    case("clone of a file", "write foo 0 1m; touch bar", "cp --reflink=always foo bar; fsync bar"),
    case(
        "clone of a range, both ways",
        "write foo 0 1m; write bar 0 1m 0xbb",
        "io bar 'reflink foo 128k 256k 100k' > /dev/null; io foo 'reflink bar 0 512k 64k'; fsync bar foo",
    ),
    case(
        "a file cloned from what is only in the log",
        "",
        "write foo 0 400k; fsync foo; io bar 'reflink foo 100k 0 200k'; fsync bar",
    ),
    case(
        "clones of a part first, then of all",
        "write foo 0 100k 1",
        "write foo 0 100k 2; io foo 'reflink foo 20k 400k 20k' 'reflink foo 0 800k 100k'; fsync foo",
    ),
    case(
        "as many references dropped as added",
        "write foo 0 128k; cp --reflink=always foo bar",
        "io foo 'fpunch 0 64k' 'reflink bar 0 0 64k' 'fpunch 64k 64k'; io bar 'reflink foo 0 256k 64k'; fsync foo bar",
    ),
    case(
        "clone then truncate the source",
        "write foo 0 256k",
        "io bar 'reflink foo 0 0 256k'; truncate -s 0 foo; fsync bar foo",
    ),
    case("dedupe", "write foo 0 256k; write bar 0 256k", "io bar 'dedupe foo 0 0 256k'; fsync bar"),
    case(
        "no file of zeros",
        "for i in 1 2 3 4 5; do echo $i > file$i; done",
        "for i in 1 2 3 4 5; do write new$i 0 3000; fsync new$i; mv new$i file$i; done; fsync file5",
    ),
    case("compressed", "", "write foo 0 1m; write bar 0 100; fsync foo bar").mount("compress-force=zstd"),
    case("compressed, overwritten", "write foo 0 1m", "write foo 200k 30k 7; fsync foo")
        .mount("compress=lzo"),
    case("compressed clones", "write foo 0 512k", "io bar 'reflink foo 64k 0 192k'; fsync bar")
        .mount("compress-force=zlib"),
    case(
        "nodatacow",
        "touch foo; chattr +C foo; write foo 0 256k",
        "write foo 100k 50k 9; write foo 300k 50k; fsync foo",
    ),
    case("nodatasum", "", "write foo 0 256k; fsync foo").mount("nodatasum"),
    case("holes: sparse write", "write foo 0 4096", "write foo 1m 4096; fsync foo").mkfs(WITH_HOLES),
    case("holes: punch", "write foo 0 1m", "io foo 'fpunch 200k 300k'; fsync foo").mkfs(WITH_HOLES),
    case(
        "holes: punch twice",
        "write foo 0 1m; io foo 'fpunch 100k 100k'",
        "io foo 'fpunch 150k 200k'; fsync foo; write foo 180k 8k; fsync foo",
    )
    .mkfs(WITH_HOLES),
    case("holes: truncate up", "write foo 0 100k", "truncate -s 1m foo; fsync foo").mkfs(WITH_HOLES),
    case(
        "holes: truncate down and up",
        "write foo 0 1m",
        "truncate -s 100k foo; truncate -s 2m foo; fsync foo",
    )
    .mkfs(WITH_HOLES),
    case(
        "holes: ranged msync keeps the hole",
        "write foo 0 256k; write foo 1m 256k",
        "io foo 'fpunch 64k 64k' 'mmap -rw 0 1280k' 'mwrite -S 1 1100k 4k' 'msync -s 1100k 4k'",
    )
    .mkfs(WITH_HOLES),
    case(
        "holes: preallocated across the end",
        "write foo 0 10k",
        "io foo 'falloc 4k 100k' 'falloc -k 200k 100k'; fsync foo",
    )
    .mkfs(WITH_HOLES),
    case(
        "holes: a gap that was not written out",
        "",
        "write foo 0 4k; fsync foo; io foo 'pwrite 1m 64k' 'sync_range -b 1m 64k'; fsync foo",
    )
    .mkfs(WITH_HOLES),
    case(
        "holes: clone",
        "write foo 0 256k; io foo 'fpunch 64k 64k'; write bar 0 512k",
        "io bar 'reflink foo 0 128k 256k'; fsync bar",
    )
    .mkfs(WITH_HOLES),
];

pub const LINKS: &[Case<'static>] = &[
    case("entry in tree and log", "mkdir A; touch A/foo", "touch A/bar; fsync A; fsync A/bar"),
    case("unlink one of two links", "mkdir A; touch A/foo; ln A/foo A/bar", "rm A/bar; fsync A/foo"),
    case("unlink the first link", "mkdir A; touch A/foo; ln A/foo A/bar", "rm A/foo; fsync A/bar"),
    case("remove a link in another directory", "mkdir A B; touch A/foo; ln A/foo B/foo2; ln A/foo B/foo3", "rm B/foo3; fsync A/foo"),
    case("remove a link and add it again", "mkdir A; touch A/foo; ln A/foo A/bar", "rm A/bar; ln A/foo A/bar; fsync A/foo"),
    case("links to two files, fsync one", "mkdir A; touch A/foo A/bar", "ln A/bar A/bar2; ln A/foo A/foo2; fsync A/bar"),
    case("directory fsync after new links", "mkdir A; touch A/foo A/bar", "ln A/foo A/foo2; ln A/bar A/bar2; ln A/foo A/foo3; fsync A"),
    case("hard link after fsync of data, then another", "touch foo bar", "write foo 0 64k; fsync foo; ln foo foo2; fsync bar; write bar 0 4k; fsync bar"),
    case("all names of a file", "mkdir A B; touch A/foo", "ln A/foo B/b1; ln A/foo B/b2; ln A/foo c; write A/foo 0 9000; fsync A/foo"),
    case("link of a new file into a new directory", "", "touch foo; mkdir A; ln foo A/bar; fsync foo"),
    case("new directory with a link, fsync the root", "touch foo", "mkdir A; ln foo A/bar; fsync ."),
    case("unlinked and its directory fsynced", "mkdir A; touch A/foo A/bar; write A/foo 0 100k", "rm A/foo; fsync A"),
    case("unlinked while open, fsynced", "mkdir A; write A/foo 0 100k; touch A/bar",
        "exec 7<>A/foo; rm A/foo; perl -e 'use IO::Handle; open(my $f, \"+<&=\", 7) or die; $f->sync or die'; fsync A/bar A"),
    case("O_TMPFILE fsynced without a link", "touch foo", "xfs_io -T -c 'pwrite 0 64k' -c fsync . > /dev/null; fsync foo; write foo 0 4k; fsync foo"),
    case("O_TMPFILE linked", "", "xfs_io -T -c 'pwrite 0 64k' -c 'flink named' . > /dev/null; fsync named"),
    case("O_TMPFILE linked after fsync", "touch foo", "xfs_io -T -c 'pwrite 0 64k' -c fsync -c 'flink named' -c fsync . > /dev/null; fsync foo"),
    case("orphans in the committed tree", "for i in 1 2 3; do write o$i 0 64k; done; write keep 0 4k; exec 5<o1 6<o2; rm o1 o2; sync -f .; true", "rm o3; write keep 0 8k 3; fsync keep"),
    case("many links with extended references", "mkdir A; touch A/foo; cd A; perl -e 'link(\"foo\", sprintf(\"link-with-a-rather-long-name-%05d\", $_)) or die for 1..1500'",
        "cd A; rm link-with-a-rather-long-name-00003 link-with-a-rather-long-name-01200; ln foo link-with-a-rather-long-name-09999; ln foo link-with-a-rather-long-name-00003; cd ..; fsync A/foo").commits(),
    case("extended references, written", "mkdir A; touch A/foo; cd A; perl -e 'link(\"foo\", sprintf(\"link-with-a-rather-long-name-%05d\", $_)) or die for 1..1500'",
        "write A/foo 0 20k; fsync A/foo"),
    case("extended references, links added", "mkdir A; touch A/foo; cd A; perl -e 'link(\"foo\", sprintf(\"link-with-a-rather-long-name-%05d\", $_)) or die for 1..900'",
        "cd A; perl -e 'link(\"foo\", sprintf(\"new-link-with-a-rather-long-name-%05d\", $_)) or die for 1..300'; cd ..; write A/foo 0 5k; fsync A/foo").commits(),
    case("extended references, unlinked, directory fsync", "mkdir A; touch A/foo; cd A; perl -e 'link(\"foo\", sprintf(\"link-with-a-rather-long-name-%05d\", $_)) or die for 1..900'",
        "cd A; rm link-with-a-rather-long-name-00880 link-with-a-rather-long-name-00002; cd ..; fsync A"),
    case("extended references, directory fsync", "mkdir A; touch A/foo; cd A; perl -e 'link(\"foo\", sprintf(\"link-with-a-rather-long-name-%05d\", $_)) or die for 1..900'",
        "cd A; perl -e 'link(\"foo\", sprintf(\"link-with-a-rather-long-name-%05d\", $_)) or die for 901..1000'; cd ..; fsync A"),
    case("more than 3000 links", "mkdir A; touch A/foo; cd A; perl -e 'link(\"foo\", \"l$_\") or die for 1..3200'",
        "cd A; perl -e 'unlink(\"l$_\") or die for 1..50; link(\"foo\", \"l$_\") or die for 10..20'; cd ..; fsync A/foo").commits(),
    case("a link taken over by another file", "mkdir A; touch A/foo A/bar; ln A/foo A/x", "rm A/x; ln A/bar A/x; fsync A/bar"),
    case("short: touch foo, mkdir A, link, fsync", "", "touch foo; mkdir A; link foo A/bar; fsync foo"),
];

pub const RENAMES: &[Case<'static>] = &[
    case("rename in a directory", "mkdir A; write A/foo 0 10k", "mv A/foo A/bar; fsync A/bar"),
    case(
        "rename after fsynced data",
        "",
        "write foo 0 100k; fsync foo; mv foo bar; write bar 50k 20k 2; fsync bar",
    ),
    case(
        "rename over an old file",
        "write foo 0 10k; write bar 0 20k",
        "write new 0 5k 9; fsync new; mv new foo; fsync foo",
    ),
    case(
        "file moved, old parent fsynced",
        "mkdir A B; touch A/foo A/bar",
        "mv A/foo B/foo; touch A/new; fsync A",
    )
    .commits(),
    case(
        "new file moved, fsynced itself",
        "mkdir A B",
        "write A/foo 0 4k; fsync A/foo; mv A/foo B/foo; fsync B/foo",
    ),
    case(
        "file moved, logged before",
        "mkdir A B; write A/foo 0 4k",
        "write A/foo 0 8k 2; fsync A/foo; mv A/foo B/foo; fsync B/foo; fsync A",
    ),
    case(
        "directory moved, logged before",
        "mkdir A B A/d; touch A/d/x",
        "touch A/d/y; fsync A/d; mv A/d B/d; fsync B/d",
    )
    .commits(),
    case("file moved, fsynced itself", "mkdir A B; write A/foo 0 4k", "mv A/foo B/foo; fsync B/foo")
        .commits(),
    case(
        "directory moved, unrelated file fsynced",
        "mkdir A B A/sub; touch A/sub/x A/foo",
        "mv A/sub B/sub; write A/foo 0 4k; fsync A/foo",
    ),
    case(
        "directory moved, child fsynced",
        "mkdir A B A/sub; touch A/sub/x A/foo",
        "mv A/sub B/sub; write B/sub/x 0 4k; fsync B/sub/x",
    ),
    case(
        "rename, create another with the old name, fsync the new",
        "write foo 0 4k",
        "mv foo bar; write foo 0 8k 2; fsync foo",
    ),
    case(
        "rename, create another with the old name, fsync the renamed",
        "write foo 0 4k",
        "mv foo bar; write foo 0 8k 2; fsync bar",
    ),
    case(
        "rename a directory, new one with the old name, fsync the new",
        "mkdir A A/x; touch A/x/foo",
        "mv A/x A/y; mkdir A/x; touch A/x/bar; fsync A/x",
    ),
    case(
        "rename a directory, new file with the old name",
        "mkdir -p A/x; touch A/x/foo",
        "mv A/x A/y; write A/x 0 4k; fsync A/x",
    ),
    case("exchange of two files", "write foo 0 4k; write bar 0 8k 2", "exchange foo bar; fsync foo"),
    case("exchange of two directories", "mkdir A B; touch A/a B/b", "exchange A B; fsync A"),
    case(
        "exchange between directories",
        "mkdir A B; write A/foo 0 4k; write B/bar 0 8k 2",
        "exchange A/foo B/bar; fsync B/bar",
    )
    .commits(),
    case(
        "exchange logged before",
        "write foo 0 4k; write bar 0 8k 2",
        "write foo 0 4k 3; fsync foo; write bar 0 8k 4; fsync bar; exchange foo bar; fsync foo",
    ),
    case("fifo renamed, old name linked again", "mkfifo foo; mkfifo bar", "mv foo foo2; ln bar foo; fsync ."),
    case(
        "special files",
        "mkdir A; mkfifo A/p; mknod A/c c 1 3; mknod A/b b 7 200",
        "mv A/p A/q; mkfifo A/p; mknod A/d c 1 5; fsync A",
    ),
    case(
        "symlink renamed in a fsynced directory",
        "mkdir A; ln -s target A/link; fsync A",
        "mv A/link A/link2; fsync A",
    ),
    case(
        "new symlink renamed in a fsynced directory",
        "mkdir A",
        "ln -s the-target A/link; fsync A; mv A/link A/link2; fsync A",
    ),
    case(
        "chain of rename, link, unlink, new",
        "touch foo; write bar 0 4k",
        "mv foo foo_old; ln bar foo; rm bar; write bar 0 8k 3; fsync bar foo",
    ),
    case(
        "chain over three names",
        "write a 0 4k 1; write b 0 4k 2; write c 0 4k 3",
        "mv a t; mv b a; mv c b; mv t c; fsync a; fsync c",
    ),
    case("swap by three renames", "write a 0 4k 1; write b 0 4k 2", "mv a t; mv b a; mv t b; fsync a"),
    case(
        "rename of a new file over a logged one",
        "",
        "write foo 0 4k; fsync foo; write bar 0 8k 2; mv bar foo; fsync foo",
    ),
    case("rename back and forth", "write foo 0 4k", "mv foo x; mv x foo; write foo 4k 4k; fsync foo"),
    case(
        "rename keeps times",
        "write foo 0 4k; write bar 0 4k",
        "fsync bar; write bar 4k 4k; fsync bar; mv foo foo2; ln bar bar2; fsync bar",
    ),
    case(
        "short: bar over bar from another directory",
        "",
        "mkdir A; touch A/bar; fsync A/bar; mkdir B; touch B/bar; mv -T B/bar A/bar; touch A/foo; fsync A/foo; fsync A",
    ),
    case(
        "move a directory, same-name file, fsync, move it, fsync",
        "mkdir A B A/d",
        "mv A/d B/d; touch A/d; fsync A/d; mv A/d A/e; fsync A",
    ),
    case(
        "no name taken after replay",
        "mkdir A; touch A/a A/b A/c",
        "rm A/c; touch A/d; fsync A/d; rm A/b; touch A/e; fsync A",
    ),
];

pub const DIRECTORIES: &[Case<'static>] = &[
    case("new files in a directory", "mkdir A", "touch A/1 A/2; write A/3 0 100k; fsync A"),
    case("new directories in a directory", "mkdir A", "mkdir -p A/b/c/d; touch A/b/c/file; fsync A"),
    case("new directory fsynced", "", "mkdir A; touch A/foo; fsync A"),
    case("new directory, deep file fsynced", "", "mkdir -p A/b/c; write A/b/c/foo 0 30k; fsync A/b/c/foo"),
    case(
        "deletions in a directory",
        "mkdir A; for i in $(seq 40); do write A/f$i 0 5k; done",
        "for i in $(seq 1 3 40); do rm A/f$i; done; touch A/new; fsync A",
    ),
    case("all deleted", "mkdir A; for i in $(seq 40); do touch A/f$i; done", "rm A/*; fsync A"),
    case("subdirectory removed", "mkdir -p A/sub; touch A/foo", "rmdir A/sub; fsync A"),
    case("tree removed", "mkdir -p A/sub/deep; touch A/sub/x A/sub/deep/y A/z", "rm -r A/sub; fsync A"),
    case(
        "removed and made again with the same name",
        "mkdir -p A/sub; touch A/sub/x",
        "rm -r A/sub; mkdir A/sub; touch A/sub/y; fsync A/sub",
    ),
    case(
        "large directory",
        "mkdir A; perl -e 'for (1..2000) { open(my $f, \">\", sprintf(\"A/a-file-with-some-name-%d\", $_)) or die }'",
        "perl -e 'for (1..2000) { unlink(sprintf(\"A/a-file-with-some-name-%d\", $_)) if $_ % 7 == 0 }'; touch A/new1 A/new2; fsync A",
    ),
    case(
        "large directory, twice",
        "mkdir A; perl -e 'for (1..600) { open(my $f, \">\", \"A/f$_\") or die }'",
        "rm A/f1 A/f300; touch A/n1; fsync A; rm A/f2 A/n1 A/f599 A/f600; touch A/n2; fsync A",
    ),
    case(
        "many new files",
        "mkdir A",
        "perl -e 'for (1..800) { open(my $f, \">\", \"A/f$_\") or die; print $f $_ }'; fsync A",
    ),
    case(
        "names with the same hash",
        "mkdir A; perl -e 'for (1..300) { open(my $f, \">\", \"A/f$_\") or die }'; touch A/keep",
        "rm A/f7; fsync A/keep; fsync A",
    ),
    case(
        "directory size: entries in tree and log",
        "mkdir A; touch A/1 A/2 A/3",
        "touch A/4; rm A/2; fsync A; fsync A/4; touch A/5; fsync A/5",
    ),
    case("file moved in, directory fsynced", "mkdir A B; write B/foo 0 4k", "mv B/foo A/foo; fsync A"),
    case("two directories", "mkdir A B; touch A/a B/b", "touch A/a2; rm B/b; fsync A B"),
    case("fsync of the root", "touch a b c; mkdir d", "rm b; touch e; mv c f; fsync ."),
    case(
        "symlinks and long targets",
        "mkdir A",
        "ln -s $(printf 'x%.0s' $(seq 1000)) A/long; ln -s y A/short; fsync A",
    ),
    case(
        "directory that held a deleted snapshot",
        "mkdir A; btrfs -q subvolume create A/s; touch A/foo",
        "btrfs -q subvolume delete A/s; touch A/bar; fsync A",
    )
    .commits(),
    case(
        "directory that holds a subvolume",
        "mkdir A; btrfs -q subvolume create A/s; touch A/s/x A/foo",
        "rm A/foo; touch A/bar; fsync A",
    ),
    case(
        "new subvolume in the directory",
        "mkdir A",
        "btrfs -q subvolume create A/s; touch A/bar; fsync A/bar; fsync A",
    )
    .commits(),
    case(
        "setgid directory and default ACL",
        "mkdir A; chmod 2775 A; setfattr -n user.d -v 1 A",
        "mkdir A/b; touch A/b/c; chmod 700 A; fsync A/b/c; fsync A",
    ),
];

pub const ATTRIBUTES: &[Case<'static>] = &[
    case("attribute set", "touch foo", "setfattr -n user.a -v 1 foo; fsync foo"),
    case(
        "attribute removed",
        "touch foo; setfattr -n user.a -v 1 foo; setfattr -n user.b -v 2 foo",
        "setfattr -x user.a foo; fsync foo",
    ),
    case(
        "attribute changed",
        "touch foo; setfattr -n user.a -v 1 foo",
        "setfattr -n user.a -v a-longer-value foo; fsync foo",
    ),
    case(
        "all attributes removed",
        "touch foo; for i in 1 2 3 4 5; do setfattr -n user.a$i -v $i foo; done",
        "for i in 1 2 3 4 5; do setfattr -x user.a$i foo; done; fsync foo",
    ),
    case(
        "attributes survive several fsyncs",
        "touch foo; setfattr -n user.a -v 1 foo",
        "setfattr -n user.b -v 2 foo; fsync foo; setfattr -n user.c -v 3 foo; write foo 0 4k; fsync foo; setfattr -x user.b foo; fsync foo",
    ),
    case(
        "attributes of a directory",
        "mkdir A; touch A/foo; setfattr -n user.a -v 1 A; setfattr -n user.b -v 2 A",
        "setfattr -x user.a A; setfattr -n user.c -v 3 A; touch A/bar; fsync A",
    ),
    case(
        "attributes of a directory, file fsynced",
        "mkdir A; setfattr -n user.a -v 1 A",
        "setfattr -x user.a A; setfattr -n user.c -v 3 A; touch A/bar; fsync A/bar",
    ),
    case(
        "large attribute",
        "touch foo",
        "setfattr -n user.big -v $(printf 'v%.0s' $(seq 3000)) foo; fsync foo",
    ),
    case(
        "attributes of a new file",
        "",
        "write foo 0 4k; setfattr -n user.a -v 1 foo; setfattr -n trusted.t -v x foo; fsync foo",
    ),
    case("owner and mode", "touch foo", "chown 1000:1001 foo; chmod 4751 foo; fsync foo"),
    case("owner of a directory", "mkdir A; touch A/x", "chown 1000:1001 A; chmod 1777 A; fsync A"),
    case("flags", "touch foo; mkdir A", "chattr +d foo; chattr +A A; fsync foo A"),
    case("append-only", "touch foo", "write foo 0 4k; chattr +a foo; xfs_io -a -c fsync foo"),
    case("times", "touch foo", "touch -d '1965-03-04 05:06:07.123456789' foo; fsync foo"),
    case("times far ahead", "touch foo", "touch -d '2200-01-01 00:00:00' foo; fsync foo"),
    case("lazytime", "touch foo", "cat foo; touch -a -d '2031-01-01' foo; fsync foo")
        .mount("lazytime,strictatime"),
    case(
        "compression property",
        "touch foo; mkdir A",
        "btrfs property set foo compression zstd; write foo 0 256k; btrfs property set A compression lzo; touch A/x; fsync foo A/x",
    ),
    case(
        "preallocation, attribute, direct write, fdatasync",
        "touch foo",
        "io foo 'falloc 0 1m'; setfattr -n user.a -v 1 foo; xfs_io -d -c 'pwrite -S 5 64k 64k' -c fdatasync foo > /dev/null",
    ),
];

pub const FORMATS: &[Case<'static>] = &[
    case(
        "two subvolumes",
        "btrfs -q subvolume create s1; btrfs -q subvolume create s2; touch s1/a s2/b c",
        "write s1/a 0 64k; write s2/b 0 64k 2; write c 0 4k; touch s2/new; fsync s1/a s2/b c s2/new",
    ),
    case(
        "snapshot present",
        "btrfs -q subvolume create s; write s/a 0 256k; write s/b 0 100k; btrfs -q subvolume snapshot s snap; btrfs -q subvolume snapshot -r s snap-ro",
        "write s/a 64k 64k 2; rm s/b; touch s/c; fsync s/a; fsync s; write snap/a 0 8k 3; fsync snap/a",
    ),
    case(
        "reflink across subvolumes",
        "btrfs -q subvolume create s; write a 0 256k",
        "cp --reflink=always a s/a; fsync s/a",
    ),
    case(
        "subvolume deleted after its log",
        "btrfs -q subvolume create s; touch s/a keep",
        "write keep 0 4k; fsync keep; write s/a 0 4k; fsync s/a; btrfs -q subvolume delete s; write keep 4k 4k; fsync keep",
    ),
    case(
        "nodesize 4096",
        "mkdir A; for i in $(seq 300); do touch A/file-with-name-$i; done",
        "for i in $(seq 1 5 300); do rm A/file-with-name-$i; done; write A/new 0 1m; fsync A A/new",
    )
    .mkfs(&["-n", "4096"]),
    case(
        "nodesize 65536",
        "mkdir A; for i in $(seq 50); do touch A/f$i; done",
        "rm A/f3; write A/new 0 1m; fsync A A/new",
    )
    .mkfs(&["-n", "65536"]),
    case("mixed groups", "write foo 0 1m", "write foo 50k 400k 2; touch bar; fsync foo bar")
        .mkfs(&["--mixed"]),
    case("xxhash", "write foo 0 1m", "write foo 50k 400k 2; fsync foo").mkfs(&["--csum", "xxhash"]),
    case("sha256", "write foo 0 100k", "write foo 50k 900k 2; fsync foo").mkfs(&["--csum", "sha256"]),
    case(
        "without free-space tree",
        "write foo 0 1m",
        "write foo 50k 400k 2; mkdir A; touch A/x; fsync foo A/x",
    )
    .mkfs(&["-R", "^free-space-tree"]),
    case(
        "without skinny metadata and extrefs",
        "write foo 0 1m; mkdir A; touch A/x",
        "write foo 50k 400k 2; ln A/x A/y; fsync foo A/x",
    )
    .mkfs(&["-O", "^skinny-metadata,^extref"]),
    case("single metadata", "write foo 0 1m", "write foo 50k 400k 2; fsync foo").mkfs(&["-m", "single"]),
    case("large file", "write foo 0 4m", "write foo 1m 5m 2; fsync foo"),
    case(
        "everything of a small tree",
        "mkdir -p t/a/b t/c; for i in $(seq 60); do write t/a/f$i 0 $((i * 500)); ln t/a/f$i t/c/l$i; done",
        "for i in $(seq 1 2 60); do write t/a/f$i 1000 9000 3; done; for i in $(seq 1 3 60); do rm t/c/l$i; done; mv t/a/f2 t/a/g2; for f in t/a/*; do test -f $f && fsync $f; done; fsync t/c",
    ),
];
