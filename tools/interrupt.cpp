#include "interrupt.h"

#include <csignal>

namespace tensorgrad::tools {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t signal_came = 0;

extern "C" void note_signal(int /*signal*/) { signal_came = 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  signal_came = 0;
  struct sigaction action{};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool InterruptGuard::interrupted() { return signal_came != 0; }

}  // namespace tensorgrad::tools
