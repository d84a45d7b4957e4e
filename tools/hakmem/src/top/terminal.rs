//! terminal.rs - the terminal, taken and given back: at the end, on a signal, and when we panic.
//!
//! Rule: whatever ends the screen, the shell finds its terminal as it left it. SIGKILL is the exception that nobody can
//!       help; `reset` does then.

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use signal_hook::consts::SIGTSTP;
use std::io::{self, Stdout, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static TAKEN: AtomicBool = AtomicBool::new(false);

pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub fn take() -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        begin()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()));
        terminal.map(|terminal| Screen { terminal }).inspect_err(|_| give_back())
    }

    /// The shell's until we are continued.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // By the signal itself: where no shell waits for us the kernel does not stop us by it.
        let _ = signal_hook::low_level::raise(SIGTSTP);
        begin()?;
        self.terminal.clear()
    }
}

fn begin() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, SeqCst);
    execute!(stdout(), EnterAlternateScreen).inspect_err(|_| give_back())
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
