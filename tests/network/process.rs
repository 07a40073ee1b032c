//! The command as a process of its own.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
};

use selvedge_protocols::ClientName;

use crate::federation::Federation;

/// A process that ends with the test.
pub(crate) struct Process {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Process {
    /// `selvedge` with these arguments, in the federation's folder.
    pub(crate) fn start(federation: &Federation, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_selvedge"))
            .args(arguments)
            .current_dir(federation.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    /// A coordinator, and the address it listens on.
    pub(crate) fn coordinator(federation: &Federation, more: &[&str]) -> (Self, String) {
        let serve = ["coordinator", "run.toml", "--listen", "127.0.0.1:0"];
        let mut process = Self::start(federation, &[&serve, more].concat());
        let line = process.until("listening on ");
        let address = line.trim().strip_prefix("listening on ").unwrap();
        (process, address.to_owned())
    }

    /// A client with the share that a simulation would deal to it.
    pub(crate) fn client(federation: &Federation, address: &str, number: usize) -> Self {
        Self::client_with(federation, address, number, &[])
    }

    /// The same, with more arguments.
    pub(crate) fn client_with(federation: &Federation, address: &str, number: usize, more: &[&str]) -> Self {
        let name = ClientName::numbered(number);
        let name = ["--name", name.as_str(), "--deal", "run.toml"];
        Self::start(federation, &[&["client", address], &name[..], more].concat())
    }

    /// Reads what it says up to a line that holds `text`, and gives that line.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = self.said.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "{text:?} was not said: {all}");
            if line.contains(text) {
                return line;
            }
            all += &line;
        }
    }

    /// How it ended, and the rest of what it said.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What Ctrl-C does.
    #[cfg(unix)]
    pub(crate) fn interrupt(&self) {
        self.signal("INT");
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
