// Runs a program as a user's shell would.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tensorgrad::test {

struct ProcessResult {
  int exit_code = -1;  ///< minus the signal's number if one ended it
  std::string out, err;
};

/// A running program whose output goes to files in a folder.
class Process {
 public:
  Process(std::vector<std::string> arguments, const std::filesystem::path& folder)
      : out_(folder / "stdout"), err_(folder / "stderr") {
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files{};
    posix_spawn_file_actions_init(&files);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out_.c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err_.c_str(), flags, 0600);
    const int error = posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw std::runtime_error("cannot run " + arguments[0]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  std::string out() const { return contents(out_); }

  /// Waits until the program has printed `text`, or has ended. Returns whether it was printed.
  bool wait_for(const std::string& text) {
    for (;;) {
      if (out().find(text) != std::string::npos) return true;
      siginfo_t info{};
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid == pid_) return out().find(text) != std::string::npos;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void send(int signal) const { kill(pid_, signal); }

  ProcessResult wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), out(), contents(err_)};
  }

 private:
  static std::string contents(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::filesystem::path out_, err_;
  pid_t pid_ = 0;
};

}  // namespace tensorgrad::test
