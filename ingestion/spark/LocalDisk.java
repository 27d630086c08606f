package idgraph;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local file system, without a process for each file that is made, and without what a thread need not see
 *  when it lists a folder. In the Java that Janino compiles: no type parameters, no lambdas. */
public class LocalDisk extends LocalFileSystem {
    /** By thread: the names that are hidden in each folder. A query lists in a thread of its own, which ends with it. */
    private final ThreadLocal hidden = new ThreadLocal();

    public LocalDisk() {
        super(new Raw());
    }

    /** Leave these names, joined by slashes, out of what this thread knows of a folder from now on. */
    public void hide(String folder, String names) {
        Map folders = (Map) hidden.get();
        if (folders == null) {
            folders = new HashMap();
            hidden.set(folders);
        }
        Set known = (Set) folders.get(folder);
        if (known == null) {
            known = new HashSet();
            folders.put(folder, known);
        }
        known.addAll(Arrays.asList((Object[]) names.split("/")));
    }

    public FileStatus[] listStatus(Path folder) throws IOException {
        Map folders = (Map) hidden.get();
        Set known = folders == null ? null : (Set) folders.get(folder.toUri().getPath());
        String[] names = known == null ? null : pathToFile(folder).list();
        if (names == null) {
            return super.listStatus(folder);
        }
        // Not of files that are gone: a flow that runs for a year would remember all that it ever took.
        known.retainAll(new HashSet(Arrays.asList((Object[]) names)));
        List found = new ArrayList();
        for (int i = 0; i < names.length; i++) {
            if (!known.contains(names[i])) {
                add(new Path(folder, new Path(null, null, names[i])), found);
            }
        }
        return (FileStatus[]) found.toArray(new FileStatus[found.size()]);
    }

    private void add(Path file, List found) throws IOException {
        if (!isChecksumFile(file)) {
            try {
                found.add(getFileStatus(file));
            } catch (FileNotFoundException gone) {
                // Between the two looks; as in Hadoop's own.
            }
        }
    }

    /** Hadoop's own starts `chmod` for each file, where its native library is not installed. */
    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission mode) throws IOException {
            String text = mode.getUserAction().SYMBOL + mode.getGroupAction().SYMBOL + mode.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
        }
    }
}
