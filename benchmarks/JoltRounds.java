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
 * Maps payloads with the Java library, on command. Arguments: for each case the chain's file and the file of
 * payloads, one a line. Each line of the input is "map C N" (case C, N times all its payloads, parsed before) or
 * "json C N" (parsed and written as well); the answer to it is the CPU time of the thread and the time of the collector, in nanoseconds.
 */
public class JoltRounds {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static long sink;

    public static void main(String[] arguments) throws Exception {
        List<Chainr> chains = new ArrayList<>();
        List<List<byte[]>> lines = new ArrayList<>();
        List<List<Object>> payloads = new ArrayList<>();
        for (int each = 0; each < arguments.length; each += 2) {
            chains.add(Chainr.fromSpec(JsonUtils.jsonToObject(Files.newInputStream(Path.of(arguments[each])))));
            lines.add(new ArrayList<>());
            payloads.add(new ArrayList<>());
            for (String line : Files.readAllLines(Path.of(arguments[each + 1]), StandardCharsets.UTF_8)) {
                byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
                lines.get(each / 2).add(bytes);
                payloads.get(each / 2).add(JsonUtils.jsonToObject(new ByteArrayInputStream(bytes)));
            }
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            int number = Integer.parseInt(words[1]);
            long repeats = Long.parseLong(words[2]);
            long before = nanoseconds();
            for (long repeat = 0; repeat < repeats; repeat++) {
                if (words[0].equals("map")) {
                    map(chains.get(number), payloads.get(number));
                } else {
                    mapJson(chains.get(number), lines.get(number));
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
