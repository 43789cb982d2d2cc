"""A look-alike of a captured /sys with faults by rule, through FUSE: faulty_sysfs.py BASE MOUNTPOINT

Needs /dev/fuse and Debian's fuse3 and python3-fusepy. Answers each line of standard input, a JSON object, by a line on
standard output when it is in force. The first line comes when the tree is mounted: {"ready": true}, or
{"missing": REASON} where this machine cannot have it. The tree is unmounted when standard input ends. Paths begin with
"/" at the mount point. What was changed in BASE is seen too.

{"path": PATH, ...}           rule for a file, in place of the one before; without more: as in BASE
    "text": TEXT                  holds this
    "bytes": [NUMBER, ...]        holds this
    "keep": LENGTH                is cut off after so many bytes
    "stamp": OFFSET               has the monotonic time of each read there, 64 bits of nanoseconds, little endian
    "open": ERRNO                 cannot be opened
    "read": ERRNO                 cannot be read
    "slow": SECONDS               reads take so long
    "hang": true                  reads wait until there is another rule
{"unplug": [PATH, ...]}       these folders and files are gone; what was open of them answers ENODEV for ever
{"plug": [PATH, ...]}         they are back, to be opened anew
{"await": PATH, "reads": N}   answers when N reads of it have begun in all
The answer is {"reads": N}: how many reads of the named path have begun so far. So a rule that was answered with N has been
met when N + 1 have begun, and its reader has come through it when N + 2 have.
"""
import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time


def say(**answer):
    print(json.dumps(answer), flush=True)


try:
    import fusepy
except (ImportError, OSError) as error:
    say(missing=f"fuse3 and python3-fusepy (scripts/need fuse): {error}")
    sys.exit()

ATTRIBUTES = ("st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime", "st_nlink", "st_size", "st_uid")


class FaultySysfs(fusepy.Operations):
    use_ns = True

    def __init__(self, base):
        self.base = base
        self.mounted = threading.Event()
        # Guards what follows; signalled by each read and each rule.
        self.changed = threading.Condition()
        self.rules = {}
        self.reads = {}
        self.unplugged = set()
        self.opened = {}
        self.dead = set()
        self.handles = 0

    def tell(self, line):
        """Brings a line into force and gives its answer."""
        with self.changed:
            path = line.pop("path", None) or line.get("await")
            if "await" in line:
                self.changed.wait_for(lambda: self.reads.get(path, 0) >= line["reads"])
            elif "unplug" in line:
                self.unplugged.update(line["unplug"])
                self.dead.update(handle for handle, path in self.opened.items() if self.is_gone(path))
            elif "plug" in line:
                self.unplugged.difference_update(line["plug"])
            else:
                self.rules[path] = line
            self.changed.notify_all()
            return {"reads": self.reads.get(path, 0)}

    def is_gone(self, path):
        return any(path == gone or path.startswith(gone + "/") for gone in self.unplugged)

    def real(self, path):
        if self.is_gone(path):
            raise fusepy.FuseOSError(errno.ENOENT)
        return self.base + path

    def init(self, path):
        self.mounted.set()

    def getattr(self, path, fh=None):
        found = os.lstat(self.real(path))
        attributes = {name: getattr(found, name) for name in ATTRIBUTES}
        for name in ("st_atime", "st_ctime", "st_mtime"):
            attributes[name] = getattr(found, name + "_ns")
        if stat.S_ISREG(found.st_mode):
            attributes["st_size"] = 4096
        return attributes

    def readdir(self, path, fh):
        folder = path.rstrip("/") + "/"
        return [".", ".."] + [name for name in os.listdir(self.real(path)) if not self.is_gone(folder + name)]

    def readlink(self, path):
        return os.readlink(self.real(path))

    def open(self, path, fi):
        with self.changed:
            os.lstat(self.real(path))
            refused = self.rules.get(path, {}).get("open")
            if refused:
                raise fusepy.FuseOSError(refused)
            self.handles += 1
            self.opened[self.handles] = path
            fi.fh = self.handles
            fi.direct_io = 1
        return 0

    def release(self, path, fi):
        with self.changed:
            self.opened.pop(fi.fh, None)
            self.dead.discard(fi.fh)
        return 0

    def read(self, path, size, offset, fi):
        with self.changed:
            self.reads[path] = self.reads.get(path, 0) + 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.rules.get(path, {}).get("hang") or fi.fh in self.dead)
            if fi.fh in self.dead:
                raise fusepy.FuseOSError(errno.ENODEV)
            rule = self.rules.get(path, {})
        time.sleep(rule.get("slow", 0))
        if "read" in rule:
            raise fusepy.FuseOSError(rule["read"])
        if "text" in rule:
            held = rule["text"].encode()
        elif "bytes" in rule:
            held = bytes(rule["bytes"])
        else:
            with open(self.real(path), "rb") as file:
                held = file.read()
        if "stamp" in rule:
            at = rule["stamp"]
            held = held[:at] + time.monotonic_ns().to_bytes(8, "little") + held[at + 8 :]
        return held[: rule.get("keep")][offset : offset + size]


def main(base, at):
    tree = FaultySysfs(base)
    # Nothing is remembered by the kernel: what goes is gone at once.
    options = {"attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0}

    def serve():
        try:
            fusepy.FUSE(tree, at, foreground=True, raw_fi=True, **options)
        except RuntimeError as error:
            say(missing=f"the right to mount: fuse says {error}")
        os._exit(0)

    threading.Thread(target=serve, daemon=True).start()
    tree.mounted.wait()
    say(ready=True)
    for line in sys.stdin:
        say(**tree.tell(json.loads(line)))
    subprocess.run(["fusermount3", "-u", "-z", at], check=False)
    # Ends what hangs: the kernel answers for a file system that is no more.
    os._exit(0)


main(*sys.argv[1:])
