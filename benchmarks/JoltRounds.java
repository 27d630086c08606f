import com.bazaarvoice.jolt.Chainr;
import com.bazaarvoice.jolt.JsonUtils;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Maps the payloads of a file with the Java library, on command. Arguments: the chain's file, the file of payloads,
 * one a line. Each line of the input is "map N" (N times all payloads, parsed before) or "json N" (parsed and written
 * as well); the answer to it is the CPU time of the thread and the time of the collector, in nanoseconds.
 */
public class JoltRounds {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static long sink;

    public static void main(String[] arguments) throws Exception {
        Chainr chain = Chainr.fromSpec(JsonUtils.jsonToObject(Files.newInputStream(Path.of(arguments[0]))));
        List<byte[]> lines = new ArrayList<>();
        List<Object> payloads = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[1]), StandardCharsets.UTF_8)) {
            byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
            lines.add(bytes);
            payloads.add(JsonUtils.jsonToObject(new ByteArrayInputStream(bytes)));
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            long repeats = Long.parseLong(words[1]);
            long before = nanoseconds();
            for (long repeat = 0; repeat < repeats; repeat++) {
                if (words[0].equals("map")) {
                    map(chain, payloads);
                } else {
                    mapJson(chain, lines);
                }
            }
            System.out.println(nanoseconds() - before);
            System.out.flush();
        }
        System.err.println(sink);
    }

    private static long nanoseconds() {
        long collecting = 0;
        for (GarbageCollectorMXBean collector : ManagementFactory.getGarbageCollectorMXBeans()) {
            collecting += collector.getCollectionTime();
        }
        return THREADS.getCurrentThreadCpuTime() + collecting * 1_000_000;
    }

    private static void map(Chainr chain, List<Object> payloads) {
        for (Object payload : payloads) {
            Object output = chain.transform(payload);
            sink += output == null ? 0 : 1;
        }
    }

    private static void mapJson(Chainr chain, List<byte[]> lines) {
        for (byte[] line : lines) {
            Object output = chain.transform(JsonUtils.jsonToObject(new ByteArrayInputStream(line)));
            sink += JsonUtils.toJsonString(output).length();
        }
    }
}
