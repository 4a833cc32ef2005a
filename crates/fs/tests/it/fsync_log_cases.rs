//! What the fsync log must satisfy: for each case what is committed, and what is done then. Every case ends
//! with an fsync, after which the power is cut.

/// What the image is like, where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Plain,
    /// Without feature no_holes.
    Holes,
    /// Nodes of 4 KiB, so that logs have several levels.
    SmallNodes,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The line of docs/design/fsync-log.md that it belongs to, in short.
    pub name: &'static str,
    pub format: Format,
    pub mount: &'static str,
    pub before: &'static str,
    pub after: &'static str,
}

const fn case(name: &'static str, before: &'static str, after: &'static str) -> Case {
    Case { name, format: Format::Plain, mount: "", before, after }
}

const fn holes(name: &'static str, before: &'static str, after: &'static str) -> Case {
    Case { format: Format::Holes, ..case(name, before, after) }
}

const fn mounted(mount: &'static str, name: &'static str, before: &'static str, after: &'static str) -> Case {
    Case { mount, ..case(name, before, after) }
}

pub const FILES: &[Case] = &[
    case("new file", "", "write foo 0 8192 1; fsync foo"),
    case("new inline file", "", "write foo 0 100 1; fsync foo"),
    case("new file in new directories", "", "mkdir A; mkdir A/B; write A/B/foo 0 8192 1; fsync A/B/foo"),
    case("overwrite", "write foo 0 65536 1", "write foo 8192 4096 2; fsync foo"),
    case("append", "write foo 0 10000 1", "write foo 10000 10000 2; fsync foo"),
    case(
        "no NULL-filled files",
        "",
        "write foo 0 30000 7; fsync foo; write foo 30000 5000 8; write bar 0 5000 1; fsync bar",
    ),
    case(
        "append after fsync",
        "write foo 0 4096 1",
        "write foo 4096 4096 2; fsync foo; write foo 8192 4096 3; fsync foo",
    ),
    case(
        "same range again and again",
        "write foo 0 65536 1",
        "write foo 0 4096 2; fsync foo; write foo 0 4096 3; fsync foo; write foo 2048 4096 4; fsync foo",
    ),
    case(
        "several parts of one logged run",
        "",
        "write foo 0 131072 1; fsync foo; write foo 8192 4096 2; write foo 50000 3000 3; punch foo 90112 8192; fsync foo; \
         write foo 4096 12288 4; write foo 60000 50000 5; fsync foo",
    ),
    case("partial-page punch", "write foo 0 65536 1", "punch foo 5000 20000; fsync foo"),
    case(
        "partial-page punch after fsync",
        "write foo 0 65536 1",
        "write foo 0 65536 2; fsync foo; punch foo 5000 20000; fsync foo",
    ),
    case(
        "punch beside hole",
        "write foo 0 16384 1; write foo 32768 16384 2",
        "punch foo 12288 4096; fsync foo; punch foo 32768 4096; fsync foo",
    ),
    holes(
        "punch beside hole, without no_holes",
        "write foo 0 16384 1; write foo 32768 16384 2",
        "punch foo 12288 4096; fsync foo; punch foo 32768 4096; fsync foo",
    ),
    case("punch the end", "write foo 0 65536 1", "punch foo 40000 30000; fsync foo"),
    case(
        "prealloc beyond EOF kept",
        "write foo 0 4096 1; falloc-keep foo 4096 65536",
        "write foo 0 4096 2; fsync foo",
    ),
    case(
        "prealloc beyond EOF made after the commit",
        "write foo 0 4096 1",
        "falloc-keep foo 4096 65536; fsync foo",
    ),
    case(
        "prealloc written in part",
        "touch foo; falloc foo 0 262144",
        "write foo 65536 4096 1; fsync foo; write foo 131072 8192 2; fsync foo; write foo 69632 4096 3; fsync foo",
    ),
    case("tiny file and falloc past EOF", "", "write foo 0 30 1; falloc foo 4096 8192; fsync foo"),
    case(
        "tiny file and falloc-keep past EOF",
        "",
        "write foo 0 30 1; fsync foo; falloc-keep foo 4096 8192; fsync foo",
    ),
    case(
        "prealloc across EOF",
        "write foo 0 6000 1",
        "falloc-keep foo 4096 65536; fsync foo; truncate foo 20000; fsync foo",
    ),
    holes(
        "prealloc across EOF, without no_holes",
        "write foo 0 6000 1",
        "falloc-keep foo 4096 65536; fsync foo; truncate foo 20000; fsync foo",
    ),
    holes(
        "size never past a gap",
        "",
        "write foo 0 4096 1; fsync foo; write foo 1048576 4096 2; fsync foo; truncate foo 2097152; fsync foo",
    ),
    holes(
        "ranged fsync keeps hole item",
        "write foo 0 4096 1; truncate foo 262144",
        "write foo 131072 4096 2; fsync foo; truncate foo 524288; write foo 400000 100 3; fsync foo",
    ),
    case("truncate down then up", "write foo 0 65536 1", "truncate foo 10000; truncate foo 65536; fsync foo"),
    case(
        "truncate down then up around an fsync",
        "write foo 0 65536 1",
        "truncate foo 10000; fsync foo; truncate foo 65536; fsync foo",
    ),
    case(
        "truncate of a file grown in the log",
        "write foo 0 4096 1",
        "write foo 4096 65536 2; fsync foo; truncate foo 6000; fsync foo",
    ),
    case(
        "truncate to nothing, then new content",
        "write foo 0 65536 1",
        "truncate foo 0; write foo 0 5000 2; fsync foo",
    ),
    case(
        "inline to extents",
        "write foo 0 100 1",
        "write foo 100 9000 2; fsync foo; truncate foo 50; fsync foo",
    ),
    case(
        "falloc keep-size after fsync",
        "",
        "write foo 0 16384 1; fsync foo; falloc-keep foo 16384 4096; fsync foo",
    ),
    case(
        "modified extents between fsyncs and rename",
        "write foo 0 65536 1",
        "write foo 0 4096 2; fsync foo; mv foo bar; write bar 8192 4096 3; fsync bar",
    ),
    case(
        "zero range",
        "write foo 0 65536 1",
        "zero foo 5000 20000; fsync foo; zero-keep foo 60000 20000; fsync foo",
    ),
    case("clone then fsync", "write foo 0 65536 1", "clone foo 0 bar 0 65536; fsync bar"),
    case(
        "clones of bytes in an item, new and over such",
        "write foo 0 1000 1; write baz 0 500 2",
        "clone foo 0 bar 0 1000; fsync bar; clone foo 0 baz 0 1000; fsync baz; rm foo; fsync bar",
    ),
    case("clone within a file", "write foo 0 65536 1", "clone foo 0 foo 131072 32768; fsync foo"),
    case(
        "clone over part, both fsynced",
        "write foo 0 65536 1; write bar 0 65536 2",
        "write foo 0 8192 3; clone foo 0 bar 16384 16384; fsync bar; fsync foo; clone bar 0 foo 32768 8192; fsync foo",
    ),
    case(
        "as many drops as adds",
        "write foo 0 65536 1",
        "clone foo 0 foo 65536 65536; punch foo 0 65536; clone foo 65536 foo 0 32768; fsync foo",
    ),
    case(
        "checksums of pieces of one extent",
        "write foo 0 65536 1",
        "write foo 0 65536 2; flush foo; clone foo 0 bar 32768 32768; fsync bar; punch foo 16384 16384; fsync foo",
    ),
    mounted(
        "compress=zstd",
        "compressed",
        "write foo 0 300000 1",
        "write foo 100000 200000 2; fsync foo; write foo 150000 100 3; fsync foo",
    ),
    mounted(
        "compress=zstd",
        "compressed inline",
        "",
        "write foo 0 3000 1; fsync foo; write foo 3000 9000 2; fsync foo",
    ),
    mounted(
        "nodatacow",
        "nodatacow",
        "write foo 0 65536 1",
        "write foo 4096 8192 2; fsync foo; write bar 0 8192 1; fsync bar",
    ),
    mounted("nodatasum", "nodatasum", "write foo 0 65536 1", "write foo 4096 8192 2; fsync foo"),
    mounted(
        "flushoncommit",
        "flushoncommit",
        "write foo 0 65536 1",
        "write foo 4096 8192 2; write bar 0 4096 3; fsync foo",
    ),
    case(
        "unsynced neighbour",
        "write foo 0 4096 1; write bar 0 4096 1",
        "write foo 0 4096 2; write bar 0 4096 3; fsync foo",
    ),
    case(
        "flushed and not fsynced",
        "write foo 0 4096 1",
        "write foo 0 4096 2; flush foo; write bar 0 4096 1; fsync bar",
    ),
];

pub const ATTRIBUTES: &[Case] = &[
    case("mode, owner", "write foo 0 4096 1", "chmod foo 4711; chown foo 1000; fsync foo"),
    case(
        "xattrs",
        "touch foo; setfattr foo user.a 1; setfattr foo user.b 2",
        "setfattr foo user.c 3; rmfattr foo user.a; fsync foo",
    ),
    case(
        "xattrs survive several fsyncs",
        "touch foo; setfattr foo user.a 1",
        "write foo 0 4096 1; fsync foo; setfattr foo user.b 2; fsync foo; write foo 0 4096 2; fsync foo; rmfattr foo user.a; fsync foo",
    ),
    case(
        "xattrs of a directory",
        "mkdir A; setfattr A user.a 1",
        "setfattr A user.b 2; fsync A; rmfattr A user.a; touch A/foo; fsync A",
    ),
    case(
        "xattrs of what is only logged to exist",
        "mkdir A; setfattr A user.a 1; touch A/foo; setfattr A/foo user.b 2",
        "mv A/foo A/bar; fsync A",
    ),
    case("mode of a directory", "mkdir A", "chmod A 700; fsync A"),
    case(
        "mtime after link",
        "write foo 0 4096 1",
        "write foo 0 4096 2; fsync foo; ln foo bar; write baz 0 100 1; fsync baz",
    ),
    case(
        "mtime after rename",
        "write foo 0 4096 1",
        "write foo 0 4096 2; fsync foo; mv foo bar; write baz 0 100 1; fsync baz",
    ),
    case("fifo and node", "mkdir A", "fifo A/f; node A/n; chmod A/f 644; fsync A/f; fsync A/n; fsync A"),
];

pub const LINKS: &[Case] = &[
    case("touch foo; mkdir A; link foo A/bar; fsync foo", "", "touch foo; mkdir A; ln foo A/bar; fsync foo"),
    case(
        "entry in tree and log",
        "mkdir A; touch A/foo",
        "ln A/foo A/foo2; touch A/bar; fsync A/bar; fsync A/foo; fsync A",
    ),
    case("unlink one of several links", "mkdir A; touch A/foo; ln A/foo A/bar", "rm A/bar; fsync A/foo"),
    case(
        "unlink one of several links, fsync dir",
        "mkdir A; touch A/foo; ln A/foo A/bar",
        "rm A/bar; fsync A",
    ),
    case(
        "links to two files, fsync one",
        "mkdir A; write A/foo 0 4096 1; write A/bar 0 4096 2",
        "ln A/foo A/foo2; ln A/bar A/bar2; fsync A/bar",
    ),
    case(
        "links to two files, then a directory",
        "mkdir A; mkdir B; touch A/foo; touch A/bar",
        "ln A/foo B/foo; ln A/bar B/bar; fsync A/bar; fsync B",
    ),
    case("remove a link in another dir", "mkdir A; touch foo; ln foo A/bar", "rm A/bar; fsync foo"),
    case(
        "remove a link in another dir, after write",
        "mkdir A; touch foo; ln foo A/bar",
        "write foo 0 4096 1; fsync foo; rm A/bar; fsync foo",
    ),
    case(
        "dir fsync after new links",
        "mkdir A; touch A/foo; touch bar",
        "ln A/foo A/foo2; ln bar A/bar; ln bar A/bar2; fsync A",
    ),
    case(
        "hard link added after fsync of data",
        "",
        "write foo 0 8192 1; fsync foo; ln foo bar; touch baz; fsync baz",
    ),
    case(
        "hard link added after fsync of data, other fsync",
        "write foo 0 4096 1",
        "write foo 0 8192 2; fsync foo; ln foo bar; fsync bar; write baz 0 100 1; fsync baz",
    ),
    case(
        "all names of fsynced inode persist",
        "mkdir A; mkdir B; write foo 0 4096 1",
        "ln foo A/one; ln foo B/two; ln foo three; fsync foo",
    ),
    case(
        "name removed and made again",
        "mkdir A; touch A/foo; ln A/foo A/bar",
        "rm A/bar; ln A/foo A/bar; fsync A/foo; rm A/bar; ln A/foo A/bar; fsync A/foo",
    ),
    case(
        "name passes to another file",
        "write foo 0 4096 1; write bar 0 4096 2",
        "rm foo; ln bar foo; fsync bar",
    ),
    case(
        "name passes to another file, fsync dir",
        "mkdir A; write A/foo 0 4096 1; write A/bar 0 4096 2",
        "rm A/foo; ln A/bar A/foo; fsync A",
    ),
    case("new dir with link to file, fsync root", "write foo 0 4096 1", "mkdir A; ln foo A/bar; fsync ."),
    case(
        "chain of unlink, link",
        "touch foo; touch bar",
        "ln foo baz; rm foo; ln bar foo; rm bar; ln baz bar; rm baz; fsync foo; fsync bar",
    ),
    case(
        "no EEXIST after replay",
        "mkdir A; touch A/foo; touch A/bar",
        "rm A/foo; ln A/bar A/foo; rm A/bar; touch A/bar; fsync A/foo; fsync A/bar",
    ),
    Case {
        format: Format::SmallNodes,
        ..case(
            "links in small nodes",
            "touch foo; mkdir A; links foo 0 200 A",
            "unlinks foo 0 50 A; links foo 300 330 A; fsync foo",
        )
    },
];

pub const MANY_LINKS: &[Case] = &[case(
    "more than 3000 links",
    "mkdir A; touch A/foo; links A/foo 0 3100 A",
    "unlinks A/foo 5 6 A; fsync A/foo; links A/foo 5 6 A; fsync A/foo; links A/foo 3100 3110 A; unlinks A/foo 3000 3001 A; fsync A/foo",
)];

pub const RENAMES: &[Case] = &[
    case("rename after fsynced data", "", "write foo 0 8192 1; fsync foo; mv foo bar; fsync bar"),
    case(
        "rename, fsync another",
        "write foo 0 4096 1; touch baz",
        "write foo 0 4096 2; fsync foo; mv foo bar; write baz 0 10 1; fsync baz",
    ),
    case(
        "rename over a file",
        "write foo 0 4096 1",
        "write foo.new 0 8192 2; fsync foo.new; mv foo.new foo; fsync foo",
    ),
    case(
        "rename over a file, fsync dir",
        "mkdir A; write A/foo 0 4096 1",
        "write A/new 0 8192 2; fsync A/new; mv A/new A/foo; fsync A",
    ),
    case(
        "name of a logged file given to a new one, fsync unrelated",
        "mkdir A; mkdir B; touch bar",
        "write A/foo 0 10 1; fsync A/foo; write B/new 0 10 2; mv B/new A/foo; write bar 0 10 3; fsync bar",
    ),
    case(
        "name of a logged and renamed file given to a new one, fsync unrelated",
        "mkdir A; mkdir B; touch bar",
        "write A/foo 0 10 1; fsync A/foo; mv A/foo B/foo; touch A/foo; write bar 0 10 3; fsync bar",
    ),
    case(
        "name in a logged directory given to a new file, fsync unrelated",
        "mkdir A; mkdir B; touch bar",
        "touch A/foo; fsync A; touch B/new; mv B/new A/foo; touch B/next; mv B/next A/foo; write bar 0 10 3; fsync bar",
    ),
    case("file moved, fsync old parent", "mkdir A; mkdir B; write A/foo 0 4096 1", "mv A/foo B/foo; fsync A"),
    case("file moved, fsync new parent", "mkdir A; mkdir B; write A/foo 0 4096 1", "mv A/foo B/foo; fsync B"),
    case("file moved, fsync it", "mkdir A; mkdir B; write A/foo 0 4096 1", "mv A/foo B/foo; fsync B/foo"),
    case(
        "file moved, fsync unrelated",
        "mkdir A; mkdir B; write A/foo 0 4096 1; touch bar",
        "write A/foo 0 4096 2; fsync A/foo; mv A/foo B/foo; write bar 0 10 1; fsync bar",
    ),
    case(
        "file moved, fsync other child",
        "mkdir A; mkdir B; touch A/foo; touch A/bar; touch B/baz",
        "mv A/foo B/foo; write A/bar 0 10 1; fsync A/bar; write B/baz 0 10 1; fsync B/baz",
    ),
    case("dir moved, fsync old parent", "mkdir A; mkdir B; mkdir A/C; touch A/C/foo", "mv A/C B/C; fsync A"),
    case(
        "dir moved, fsync new parent",
        "mkdir A; mkdir B; mkdir A/C; touch A/C/foo",
        "mv A/C B/C; touch B/bar; fsync B",
    ),
    case(
        "dir moved, fsync child",
        "mkdir A; mkdir B; mkdir A/C; touch A/C/foo",
        "mv A/C B/C; write B/C/foo 0 10 1; fsync B/C/foo",
    ),
    case(
        "dir moved, fsync new child",
        "mkdir A; mkdir B; mkdir A/C",
        "mv A/C B/C; write B/C/foo 0 10 1; fsync B/C/foo",
    ),
    case(
        "dir moved below its child's old place",
        "mkdir A; mkdir A/B; touch A/B/foo",
        "mv A/B B; mv A B/A; fsync B/A",
    ),
    case(
        "new child below swapped directories",
        "mkdir A; mkdir A/B; mkdir A/B/C",
        "mv A/B B; mv A B/C/A; touch B/C/A/foo; fsync B/C/A/foo",
    ),
    case(
        "rename dir, create new with old name",
        "mkdir A; touch A/foo",
        "mv A B; mkdir A; touch A/bar; fsync A",
    ),
    case(
        "rename dir, create new with old name, fsync child",
        "mkdir A; touch A/foo",
        "mv A B; mkdir A; write A/bar 0 10 1; fsync A/bar",
    ),
    case(
        "rename file, new one with old name: fsync new",
        "mkdir A; write A/foo 0 4096 1",
        "mv A/foo A/bar; write A/foo 0 8192 2; fsync A/foo",
    ),
    case(
        "rename file, new one with old name: fsync renamed",
        "mkdir A; write A/foo 0 4096 1",
        "mv A/foo A/bar; write A/foo 0 8192 2; write A/bar 0 10 3; fsync A/bar",
    ),
    case(
        "mkdir A; touch A/bar; fsync A/bar; …",
        "",
        "mkdir A; touch A/bar; fsync A/bar; mkdir B; touch B/bar; mv B/bar A/bar; touch A/foo; fsync A/foo; fsync A",
    ),
    case(
        "rename special file, relink old name",
        "mkdir A; fifo A/f; touch A/foo",
        "mv A/f A/g; ln A/foo A/f; fsync A/foo; fsync A",
    ),
    case(
        "rename node, new file with old name",
        "mkdir A; node A/n",
        "mv A/n A/m; write A/n 0 10 1; fsync A/n",
    ),
    case("symlink renamed in fsynced dir", "mkdir A; symlink target A/old", "mv A/old A/new; fsync A"),
    case(
        "new symlink renamed in fsynced dir",
        "mkdir A",
        "symlink some/target A/old; mv A/old A/new; fsync A",
    ),
    case(
        "move dir, same-name file, fsync, move it, fsync dir",
        "mkdir A; mkdir B; mkdir A/x",
        "mv A/x B/x; write A/x 0 10 1; fsync A/x; mv A/x A/y; fsync A",
    ),
    case(
        "chains of rename and link",
        "mkdir A; write A/foo 0 10 1; write A/bar 0 10 2",
        "mv A/foo A/baz; mv A/bar A/foo; mv A/baz A/bar; write A/foo 0 10 3; fsync A/foo",
    ),
    case(
        "chain over three files",
        "mkdir A; touch A/a; touch A/b; touch A/c",
        "mv A/a A/t; mv A/b A/a; mv A/c A/b; mv A/t A/c; fsync A/b; write A/t 0 10 1; fsync A/t",
    ),
    case(
        "rename, link, unlink, new file with old names",
        "mkdir A; mkdir B; write A/foo 0 10 1",
        "mv A/foo B/foo; ln B/foo A/bar; rm B/foo; write B/foo 0 10 2; write A/foo 0 10 3; fsync A/foo; fsync B/foo; fsync A/bar",
    ),
    case(
        "exchange",
        "mkdir A; mkdir B; write A/foo 0 10 1; write B/bar 0 10 2",
        "exchange A/foo B/bar; fsync A/foo",
    ),
    case(
        "exchange of file and directory",
        "write foo 0 10 1; mkdir A; touch A/bar",
        "exchange foo A; fsync A",
    ),
    case("whiteout", "mkdir A; write A/foo 0 10 1", "whiteout A/foo A/bar; fsync A/bar"),
    case(
        "logged, renamed, name reused, other fsync",
        "mkdir A; touch A/z",
        "write A/foo 0 10 1; fsync A/foo; mv A/foo A/bar; write A/foo 0 10 2; write A/z 0 10 3; fsync A/z",
    ),
    case(
        "logged, unlinked, name reused",
        "mkdir A",
        "write A/foo 0 10 1; fsync A/foo; rm A/foo; write A/foo 0 10 2; fsync A/foo",
    ),
    case(
        "logged directory renamed, other fsync",
        "mkdir A; touch bar",
        "mkdir A/B; touch A/B/foo; fsync A/B; mv A/B A/C; write bar 0 10 1; fsync bar",
    ),
    case(
        "logged directory removed, other fsync",
        "mkdir A; touch bar",
        "mkdir A/B; fsync A/B; rmdir A/B; write bar 0 10 1; fsync bar",
    ),
];

pub const DIRECTORIES: &[Case] = &[
    case("new directory", "", "mkdir A; fsync A"),
    case(
        "new tree, fsync top",
        "",
        "mkdir A; mkdir A/B; touch A/B/foo; symlink x A/B/l; mkdir A/B/C; touch A/B/C/bar; fsync A",
    ),
    case(
        "names of an old directory",
        "mkdir A; touch A/a; touch A/b; touch A/c",
        "rm A/b; touch A/d; write A/e 0 10 1; fsync A",
    ),
    case(
        "names of an old directory, twice",
        "mkdir A; touch A/a; touch A/b; touch A/c",
        "rm A/b; touch A/d; fsync A; rm A/a; rm A/d; touch A/b; fsync A",
    ),
    case("unlinked file, its dir fsynced", "mkdir A; write A/foo 0 4096 1", "rm A/foo; fsync A"),
    case("unlinked file fsynced", "mkdir A; write A/foo 0 4096 1", "hold A/foo held; rm A/foo; fsync held"),
    case(
        "unlinked logged file fsynced",
        "mkdir A; write A/foo 0 4096 1",
        "hold A/foo held; write A/foo 0 10 2; fsync A/foo; rm A/foo; fsync held",
    ),
    case("removed directory", "mkdir A; mkdir A/B; touch A/B/foo", "rm A/B/foo; rmdir A/B; fsync A"),
    case("tmpfile without link", "", "tmpfile . held; write held 0 8192 1; fsync held"),
    case(
        "tmpfile linked",
        "mkdir A",
        "tmpfile A held; write held 0 8192 1; fsync held; ln held A/foo; fsync A/foo",
    ),
    case(
        "tmpfile fsynced, linked, directory fsynced",
        "mkdir A",
        "tmpfile A held; write held 0 8192 1; fsync held; ln held A/foo; fsync A",
    ),
    case(
        "many tmpfiles",
        "",
        "tmpfile . a; tmpfile . b; tmpfile . c; write a 0 5000 1; write b 0 5000 2; fsync a; fsync b; fsync c; touch foo; fsync .",
    ),
    case("top directory", "touch foo; mkdir A", "rm foo; rmdir A; touch bar; fsync ."),
    Case {
        format: Format::SmallNodes,
        ..case(
            "many names in small nodes",
            "mkdir A; touch A/f; links A/f 0 300 A",
            "unlinks A/f 100 200 A; links A/f 400 500 A; fsync A",
        )
    },
];

pub const SUBVOLUMES: &[Case] = &[
    case(
        "two subvolumes' logs",
        "subvolume S; subvolume T; write S/foo 0 10 1",
        "write S/foo 0 8192 2; fsync S/foo; write T/bar 0 8192 3; fsync T/bar; write top 0 10 4; fsync top",
    ),
    case(
        "snapshot shares what is logged",
        "subvolume S; write S/foo 0 65536 1; snapshot S P",
        "write S/foo 8192 4096 2; fsync S/foo; write P/foo 0 4096 3; fsync P/foo",
    ),
    case("new subvolume commits", "", "subvolume S; write S/foo 0 10 1; commit-fsync S/foo"),
    case(
        "fsync dir that held a deleted snapshot",
        "mkdir A; subvolume S; snapshot S A/P",
        "delete A/P; touch A/foo; commit-fsync A",
    ),
    case(
        "file beside a deleted snapshot",
        "mkdir A; subvolume S; snapshot S A/P",
        "delete A/P; write A/foo 0 10 1; fsync A/foo",
    ),
    case(
        "fsync of a file that left a removed directory",
        "mkdir A; touch A/foo",
        "mv A/foo foo; rmdir A; commit-fsync foo",
    ),
    case(
        "fsync of the parent of a removed directory",
        "mkdir A; touch A/foo",
        "mv A/foo foo; rmdir A; commit-fsync .",
    ),
    case(
        "a file left a directory two below what is fsynced, both removed",
        "mkdir A; mkdir A/B; touch A/B/foo; mkdir D",
        "mv A/B/foo D/foo; rmdir A/B; rmdir A; commit-fsync .",
    ),
    case(
        "removed directories that held a file",
        "mkdir A; mkdir A/B; touch A/B/foo",
        "rm A/B/foo; rmdir A/B; rmdir A; fsync .",
    ),
    case(
        "removed directory that held a subvolume",
        "mkdir A; subvolume A/S",
        "delete A/S; rmdir A; commit-fsync .",
    ),
    case(
        "removed directories that held a subvolume",
        "mkdir A; mkdir A/B; subvolume A/B/S",
        "delete A/B/S; rmdir A/B; rmdir A; commit-fsync .",
    ),
    case(
        "removed directory that held a placeholder",
        "subvolume T; mkdir T/A; subvolume T/A/S; snapshot T P; delete T/A/S",
        "rmdir P/A/S; rmdir P/A; commit-fsync P",
    ),
    mounted("notreelog", "notreelog", "", "write foo 0 10 1; commit-fsync foo"),
];
