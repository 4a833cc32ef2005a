//! An image that is dropped without being closed.

use std::io;

use tracing_subscriber::fmt::MakeWriter;
use vlinder::Image;
use vlinder_base::sync::{Arc, Mutex};

use crate::empty_image;

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// How often something is warned of by `work`, which opens the image and lets it go.
fn warnings(name: &str, work: impl FnOnce(Image)) -> usize {
    let (_scratch, path) = empty_image(name);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, || work(Image::open(&path).unwrap()));
    let logged = String::from_utf8(log.0.lock().clone()).unwrap();
    let warned = logged.lines().filter(|line| line.contains("WARN") && line.contains("without Image::close"));
    let count = warned.inspect(|line| assert!(line.contains(path.to_str().unwrap()), "{line}")).count();
    let image = Image::open(&path).unwrap();
    image.close().unwrap();
    count
}

#[test]
fn changes_that_were_not_closed_are_warned_of_and_kept() {
    let (_scratch, path) = empty_image("dropped");
    let count = warnings("warned", |image| image.write("/file", "x").unwrap());
    assert_eq!(count, 1);
    let image = Image::open(&path).unwrap();
    image.write("/file", "kept").unwrap();
    drop(image);
    let image = Image::open(&path).unwrap();
    assert_eq!(image.read_to_string("/file").unwrap(), "kept");
    image.close().unwrap();
}

#[test]
fn a_write_to_an_open_file_is_a_change_too() {
    let count = warnings("file", |image| {
        image.write("/file", "x").unwrap();
        let file = image.options().write(true).open("/file").unwrap();
        image.sync().unwrap();
        file.write_at(b"more", 0).unwrap();
    });
    assert_eq!(count, 1);
}

#[test]
fn nothing_is_warned_of_where_nothing_is_unsaved() {
    assert_eq!(warnings("read", |image| assert!(!image.exists("/file").unwrap())), 0);
    let write_and = |end: fn(Image)| {
        move |image: Image| {
            image.write("/file", "x").unwrap();
            end(image);
        }
    };
    assert_eq!(warnings("synced", write_and(|image| image.sync().unwrap())), 0);
    assert_eq!(warnings("closed", write_and(|image| image.close().unwrap())), 0);
}
