import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;

/** As drive.c. */
public final class Drive {
    public static void main(String[] none) throws Exception {
        Lease lease = null;
        try {
            lease = new Lease(Path.of(System.getenv("LEASEHOLD_LEASE")));
        } catch (Exception why) {
            System.err.println("refused: " + why.getMessage());
            System.exit(65);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            long times = Long.parseLong(line), began = System.nanoTime(), left = 0;
            for (long i = 0; i < times; i++) left = lease.remaining();
            System.out.println(left + " " + (System.nanoTime() - began) / times);
        }
    }
}
