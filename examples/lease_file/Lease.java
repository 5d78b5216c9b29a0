import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Is the lease of this command live? {@link #remaining}: what is left in ns, 0 once it is over. */
public final class Lease {
    private static final Pattern RECORD = Pattern.compile("(leasehold-lease 1 state=(live|over) "
        + "deadline=(\\d+) token=\\S+ boot=(\\S+) timens=(\\d+)( .*)?) sum=([0-9a-f]{16})\n");
    private static final int STEP = 5; // ms. A suspend moves the wall clock by more
    private final Path path;
    private ByteBuffer shared, line;
    private long deadline, wall, ahead;
    private boolean over;

    /** Throws for what is no record of a lease of this boot. */
    public Lease(Path path) throws IOException { this.path = path; open(); }

    private void open() throws IOException {
        String mounts = Files.readString(Path.of("/proc/self/mountinfo"), ISO_8859_1);
        if (mounts.contains(" /proc/uptime ")) // as lxcfs has it
            throw new IOException("uptime is not the machine's");
        List<Object> ours = List.of(0, Files.getAttribute(Path.of("/proc/self"), "unix:uid"));
        if (!Files.isRegularFile(path) || !ours.contains(Files.getAttribute(path, "unix:uid")))
            throw new IOException("no file of ours or of root");
        try (FileChannel file = FileChannel.open(path)) {
            shared = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size());
        }
        parse();
    }

    private void parse() throws IOException {
        for (int tries = 0; tries < 100; tries++) { // of a write, a part may be seen
            deadline = 0;
            line = ByteBuffer.allocate(shared.capacity()).put(shared.duplicate()).rewind();
            Matcher found = RECORD.matcher(ISO_8859_1.decode(line.duplicate()));
            if (!found.matches()) continue;
            long hash = 0xcbf29ce484222325L;
            for (byte each : found.group(1).getBytes(ISO_8859_1))
                hash = (hash ^ each & 0xff) * 0x100000001b3L;
            if (hash != Long.parseUnsignedLong(found.group(7), 16)) continue;
            String boot = Files.readString(Path.of("/proc/sys/kernel/random/boot_id")).trim();
            Path link = Path.of("/proc/self/ns/time"), one = Path.of("time:[0]"); // before 5.6
            Path timens = Files.isSymbolicLink(link) ? Files.readSymbolicLink(link) : one;
            if (!(boot + " time:[" + found.group(5) + "]").equals(found.group(4) + " " + timens))
                throw new IOException("of another boot or time namespace");
            if (found.group(2).equals("live")) deadline = Long.parseLong(found.group(3));
            return;
        }
        throw new IOException("no record of a lease, or of a later version");
    }

    private long now() throws IOException {
        long mono = System.nanoTime(), since = System.currentTimeMillis() - mono / 1_000_000;
        if (ahead == 0 || Math.abs(since - wall) >= STEP) {
            wall = since; // uptime has steps of 10 ms
            String uptime = Files.readString(Path.of("/proc/uptime")).split(" ")[0];
            long boot = Long.parseLong(uptime.replace(".", "")) * 10_000_000;
            ahead = boot + (10 + STEP) * 1_000_000 - mono;
        }
        return mono + ahead;
    }

    public synchronized long remaining() {
        for (boolean again = false; !over; again = true)
            try {
                if (again) open(); // a file that was deleted is made again
                if (shared.mismatch(line) >= 0) parse(); // what has not changed was judged before
                long left = deadline - now(); // the clock is last
                if (left > 0) return left;
                throw new IOException("over");
            } catch (IOException | RuntimeException | InternalError notLive) { over = again; }
        return 0; // final
    }
}
