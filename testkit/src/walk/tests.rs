use super::*;
use crate::Scratch;
use rustix::fs::XattrFlags;

fn entry(path: &str) -> Entry {
    Entry {
        path: path.into(),
        mode: 0o100644,
        uid: 1,
        gid: 2,
        links: 3,
        modified_ns: -5,
        size: 6,
        first_path: Some(path.into()),
        device: None,
        target: None,
        xattrs: vec![(b"user.k".to_vec(), short_hash(b""))],
        content: Some(short_hash(b"abc")),
        data_ranges: Some(vec![(0, 4096), (8192, 1)]),
    }
}

#[test]
fn a_line_has_its_fields_in_order_and_stays_one_line() {
    assert_eq!(
        entry("a|b\nc\\ö").line(),
        "a\\x7cb\\x0ac\\x5cö|0o100644|1|2|3|-5|6|a\\x7cb\\x0ac\\x5cö|user.k=e3b0c44298fc1c149afb|\
         ba7816bf8f01cfea4141|data=0+4096,8192+1"
    );
    assert_eq!(escape(b"\xff\xfea"), "\\xff\\xfea");
}

#[test]
fn differences_are_named() {
    let expected = render(&[entry("same"), entry("gone"), entry("changed")]);
    let changed = Entry { size: 7, mode: 0o100600, ..entry("changed") };
    let difference = compare(&expected, &render(&[entry("same"), changed, entry("new")])).unwrap_err();
    let text = difference.to_string();
    assert_eq!(difference.count, 3);
    for part in [
        "missing  gone|",
        "extra    new|",
        "mode 0o100644 expected, 0o100600 found",
        "size 6 expected, 7 found",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let reordered = compare(&render(&[entry("a"), entry("b")]), &render(&[entry("b"), entry("a")]));
    assert!(reordered.is_err());
    assert!(compare(&expected, &expected).is_ok());
}

#[test]
fn a_host_tree_is_walked_with_links_holes_and_attributes() {
    let scratch = Scratch::new("walk");
    std::fs::create_dir(scratch.join("d")).unwrap();
    std::fs::write(scratch.join("d/file"), b"abc").unwrap();
    std::fs::hard_link(scratch.join("d/file"), scratch.join("z")).unwrap();
    std::os::unix::fs::symlink("nowhere", scratch.join("d/link")).unwrap();
    let sparse = std::fs::File::create(scratch.join("e")).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"x", 1 << 20).unwrap();
    drop(sparse);
    let has_xattr = rustix::fs::setxattr(scratch.join("e"), "user.k", b"v", XattrFlags::empty()).is_ok();
    let options = Options { data_ranges: true, ..Options::default() };
    let entries = walk(scratch.path(), &options).unwrap();
    let paths: Vec<&str> = entries.iter().map(|entry| std::str::from_utf8(&entry.path).unwrap()).collect();
    assert_eq!(paths, ["d", "d/file", "d/link", "e", "z"]);
    assert_eq!(entries[0].first_path, None);
    assert_eq!((entries[1].links, entries[1].content.clone()), (2, Some(short_hash(b"abc"))));
    assert_eq!(entries[2].target.as_deref(), Some(&b"nowhere"[..]));
    assert_eq!(entries[4].first_path.as_deref(), Some(&b"d/file"[..]));
    let ranges = entries[3].data_ranges.as_ref().unwrap();
    assert_eq!(ranges.last().map(|(start, length)| start + length), Some((1 << 20) + 1));
    if has_xattr {
        assert!(entries[3].xattrs.contains(&(b"user.k".to_vec(), short_hash(b"v"))));
    } else {
        crate::require::skip(
            "a_tree_of_the_host_is_walked…",
            "needs user xattrs in the temporary directory (one assertion)",
        );
    }
}
