//! The user's terminal.

use super::watching::Event;
use anyhow::{Context, Result};
use crossterm::{cursor, execute, terminal};
use std::io::{Read, Write};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Interval at which a change of the terminal's size is noticed.
pub(super) const REDRAWN_EVERY: Duration = Duration::from_millis(500);

/// Screen size if the terminal does not report one.
const USUAL_SIZE: (u16, u16) = (80, 24);

/// A terminal on its alternate screen; dropping it restores the original screen.
pub(super) struct Terminal;

impl Terminal {
    /// Switches to the alternate screen.
    pub(super) fn open() -> Result<Terminal> {
        terminal::enable_raw_mode().context("cannot use the terminal")?;
        let terminal = Terminal;
        execute!(std::io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(terminal)
    }

    /// Returns the number of columns and lines.
    pub(super) fn size() -> (u16, u16) {
        terminal::size().unwrap_or(USUAL_SIZE)
    }

    /// Displays these lines.
    pub(super) fn show(lines: &[String]) -> Result<()> {
        let mut text = String::from("\x1b[H");
        for (index, line) in lines.iter().enumerate() {
            text.push_str(if index == 0 { "" } else { "\r\n" });
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to the terminal")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing more can be done if this fails.
        let _ = execute!(std::io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// Reads standard input on a thread of its own, which runs until the process ends.
pub(super) fn read_keys(events: Sender<Event>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut buffer) {
            if events.send(Event::Typed(buffer[..count].to_vec())).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Closed);
    });
}
