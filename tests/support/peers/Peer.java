import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/**
 * Apache Curator's locks, driven by lines: "take KIND PATH MILLIS" answers "taken" or "busy"; "free" releases what was taken;
 * "turns KIND PATH COUNT FILE" adds one to the number in a file, under the lock, COUNT times.
 *
 * <p>usage: Peer HOST:PORT
 */
public class Peer {
    /** Releases a lock. */
    interface Release {
        void run() throws Exception;
    }

    /** One attempt of each recipe; null if the lock was busy for that long. */
    static Release take(CuratorFramework client, String kind, String path, long millis) throws Exception {
        switch (kind) {
            case "mutex": {
                InterProcessMutex lock = new InterProcessMutex(client, path);
                return lock.acquire(millis, TimeUnit.MILLISECONDS) ? lock::release : null;
            }
            case "write": {
                InterProcessMutex lock = new InterProcessReadWriteLock(client, path).writeLock();
                return lock.acquire(millis, TimeUnit.MILLISECONDS) ? lock::release : null;
            }
            case "read": {
                InterProcessMutex lock = new InterProcessReadWriteLock(client, path).readLock();
                return lock.acquire(millis, TimeUnit.MILLISECONDS) ? lock::release : null;
            }
            case "semaphore_mutex": {
                InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(client, path);
                return lock.acquire(millis, TimeUnit.MILLISECONDS) ? lock::release : null;
            }
            case "semaphore": {
                InterProcessSemaphoreV2 lock = new InterProcessSemaphoreV2(client, path, 1);
                Lease lease = lock.acquire(millis, TimeUnit.MILLISECONDS);
                return lease == null ? null : () -> lock.returnLease(lease);
            }
            case "latch": {
                LeaderLatch latch = new LeaderLatch(client, path, "curator");
                latch.start();
                if (latch.await(millis, TimeUnit.MILLISECONDS)) {
                    return latch::close;
                }
                latch.close();
                return null;
            }
            case "whole_names":
                return sequential(client, path, millis, Comparator.naturalOrder());
            case "numbers":
                return sequential(
                        client, path, millis, Comparator.comparing(name -> name.substring(name.length() - 10)));
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** The recipe without a library: a sequential node, which holds when it is the first of all in this order. */
    static Release sequential(CuratorFramework client, String path, long millis, Comparator<String> order)
            throws Exception {
        ZooKeeper zookeeper = client.getZookeeperClient().getZooKeeper();
        String own = zookeeper.create(
                path + "/lock-", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL);
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        while (System.nanoTime() < end) {
            List<String> names = zookeeper.getChildren(path, false);
            names.sort(order);
            if (own.endsWith("/" + names.get(0))) {
                return () -> zookeeper.delete(own, -1);
            }
            Thread.sleep(10);
        }
        zookeeper.delete(own, -1);
        return null;
    }

    static void addOne(Path file) throws Exception {
        long value = Long.parseLong(new String(Files.readAllBytes(file)).trim());
        // Work that takes a while, in which another holder would read the same number.
        Thread.sleep(5);
        Files.write(file, Long.toString(value + 1).getBytes());
    }

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.builder()
                        .connectString(arguments[0])
                        .sessionTimeoutMs(10_000)
                        .connectionTimeoutMs(5_000)
                        .retryPolicy(new RetryNTimes(10, 200))
                        .build();
        client.start();
        client.blockUntilConnected();
        System.out.println("up");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Release held = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "take":
                    held = take(client, words[1], words[2], Long.parseLong(words[3]));
                    System.out.println(held == null ? "busy" : "taken");
                    break;
                case "free":
                    held.run();
                    System.out.println("free");
                    break;
                case "turns":
                    int count = Integer.parseInt(words[3]);
                    for (int turn = 0; turn < count; turn++) {
                        Release release = take(client, words[1], words[2], 60_000);
                        addOne(Paths.get(words[4]));
                        release.run();
                    }
                    System.out.println("done");
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            System.out.flush();
        }
        client.close();
    }
}
